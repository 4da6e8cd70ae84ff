"""Tell signal from background in collider events with a residual network (HIGGS-like table)."""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class EventClassifier(L.LightningModule):
    def __init__(self, features, width, blocks, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Linear(features, width),
            *[Residual(width) for _ in range(blocks)],
            nn.LayerNorm(width),
            nn.Linear(width, 1),
        )

    def training_step(self, batch, batch_idx):
        features, label = batch
        logit = self.net(features).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        if self.global_step % 100 == 0:
            print(f"step {self.global_step} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        fused = self.device.type == "cuda"
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-4, fused=fused)


class Events(L.LightningDataModule):
    def __init__(self, events, features, batch_size, workers, fixed):
        super().__init__()
        self.events, self.features = events, features
        self.batch_size, self.workers, self.fixed = batch_size, workers, fixed

    def setup(self, stage):
        kinematics = torch.randn(self.events, self.features)
        label = (kinematics[:, :4].sum(dim=1) > 0).float()
        self.train = TensorDataset(kinematics, label)

    def train_dataloader(self):
        common = {
            "num_workers": self.workers,
            "pin_memory": True,
            "persistent_workers": self.workers > 0,
        }
        if self.fixed:
            batches = BatchSampler(RandomSampler(self.train), self.batch_size, drop_last=True)
            return DataLoader(self.train, sampler=batches, batch_size=None, **common)
        return DataLoader(
            self.train, batch_size=self.batch_size, shuffle=True, drop_last=True, **common
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=28)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    L.seed_everything(0)
    torch.set_float32_matmul_precision("high")
    data = Events(args.events, args.features, args.batch_size, args.workers, args.fixed)
    model = EventClassifier(args.features, args.width, args.blocks, lr=1e-3)
    trainer = L.Trainer(
        max_steps=args.steps,
        max_epochs=-1,
        accelerator="auto",
        devices=1,
        precision="bf16-mixed" if torch.cuda.is_available() else "32-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)


if __name__ == "__main__":
    main()
