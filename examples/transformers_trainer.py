"""The Trainer of Transformers: two lines give it the loader; a small vision transformer, made from a config.

python examples/transformers_trainer.py [FOLDER]
"""

import sys

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import bcsc


class Digits(Dataset[dict[str, Tensor]]):
    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images / 255 - 0.5, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


class BlockCyclicTrainer(Trainer):
    def get_train_dataloader(self) -> bcsc.BlockCyclicLoader:
        return bcsc.BlockCyclicLoader(self.train_dataset, batches, collate_fn=self.data_collator)


digits = bcsc.data.load("digits")
train_set, test_set = Digits(digits.train_images, digits.train_labels), Digits(digits.test_images, digits.test_labels)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
model = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_channels=1, num_labels=10, **sizes))
batches = bcsc.BlockCyclicSampler(len(train_set), batch_size=64, num_blocks=4)
base = torch.optim.AdamW(model.parameters(), lr=0.01)
optimizer = bcsc.BlockCyclic(base, num_blocks=4, steps_per_epoch=batches.steps_per_epoch)
trainer = BlockCyclicTrainer(
    model,
    TrainingArguments(
        sys.argv[1] if len(sys.argv) > 1 else "transformers_trainer",
        num_train_epochs=4,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=train_set,
    eval_dataset=test_set,
    compute_metrics=lambda seen: {"accuracy": float((seen.predictions.argmax(1) == seen.label_ids).mean())},
    optimizers=(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4 * len(batches))),
)
trainer.train()
print(f"test accuracy {100 * trainer.evaluate()['eval_accuracy']:.1f} %")
