"""The Trainer of Transformers: two lines give it the loader; a small ConvNeXt, made from a config.

python examples/transformers_trainer.py [FOLDER [CHECKPOINT_TO_GO_ON_FROM]]
"""

import sys

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import ConvNextConfig, ConvNextForImageClassification, Trainer, TrainingArguments

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
sizes = {"num_stages": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "patch_size": 4}
model = ConvNextForImageClassification(ConvNextConfig(num_channels=1, num_labels=10, **sizes))
batches = bcsc.BlockCyclicSampler(len(train_set), batch_size=64, num_blocks=4)
base = torch.optim.AdamW(model.parameters(), lr=0.01)
optimizer = bcsc.BlockCyclic(base, num_blocks=4, steps_per_epoch=batches.steps_per_epoch)
trainer = BlockCyclicTrainer(
    model,
    TrainingArguments(
        sys.argv[1] if len(sys.argv) > 1 else "transformers_trainer",
        num_train_epochs=4,
        save_strategy="epoch",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=train_set,
    eval_dataset=test_set,
    compute_metrics=lambda seen: {"accuracy": float((seen.predictions.argmax(1) == seen.label_ids).mean())},
    optimizers=(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4 * len(batches))),
)
trainer.train(resume_from_checkpoint=sys.argv[2] if len(sys.argv) > 2 else None)
print(f"test accuracy {100 * trainer.evaluate()['eval_accuracy']:.1f} %")
