"""Lightning: it sets the epoch of the sampler, and the optimizer turns over by itself.

python examples/lightning_trainer.py [FOLDER]
"""

import sys

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc

digits = bcsc.data.load("digits")
train_set = TensorDataset(digits.train_images / 255, digits.train_labels)
test_loader = DataLoader(TensorDataset(digits.test_images / 255, digits.test_labels), batch_size=500)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.batches = bcsc.BlockCyclicSampler(len(train_set), batch_size=64, num_blocks=4)

    def configure_optimizers(self) -> bcsc.BlockCyclic:
        base = torch.optim.SGD(self.network.parameters(), lr=0.3, momentum=0.9)
        return bcsc.BlockCyclic(base, num_blocks=4, steps_per_epoch=self.batches.steps_per_epoch)

    def train_dataloader(self) -> bcsc.BlockCyclicLoader:
        self.part = bcsc.RankSampler(self.batches, self.global_rank, self.trainer.world_size)
        return bcsc.BlockCyclicLoader(train_set, self.part)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.network(images), labels) * self.part.loss_weight(batch_idx)

    def validation_step(self, batch: list[Tensor]) -> None:
        images, labels = batch
        self.log("accuracy", (self.network(images).argmax(1) == labels).float().mean(), sync_dist=True)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    folder = sys.argv[1] if len(sys.argv) > 1 else "lightning_trainer"
    trainer = lightning.Trainer(
        max_epochs=4, accelerator="cpu", default_root_dir=folder, logger=False, enable_progress_bar=False
    )
    trainer.fit(Classifier(), val_dataloaders=test_loader)
    print(f"test accuracy {100 * trainer.callback_metrics['accuracy'].item():.1f} %")
