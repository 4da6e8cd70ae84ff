"""Train a ResNet in lightning, with workers, pinned memory and few log entries."""

import argparse
import logging

import lightning
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50


class Images(Dataset):
    def __init__(self, count):
        self.count = count
        self.images = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.images[index % 64], index % 100


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = resnet50(num_classes=100).to(memory_format=torch.channels_last)

    def training_step(self, batch, _):
        images, labels = batch
        images = images.to(memory_format=torch.channels_last).float() / 127.5 - 1
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    cuda = torch.cuda.is_available()
    loader = DataLoader(
        Images(args.batch_size * args.steps), args.batch_size, num_workers=8, pin_memory=cuda
    )
    trainer = lightning.Trainer(
        max_steps=args.steps,
        precision="bf16-mixed" if cuda else "32-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
