"""Train a small residual network on synthetic images, in the usual loop with its averages."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Noise; the label is the colour that a corner was given."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, self.size, self.size, generator=generator)
        label = index % 10
        image[:, :4, :4] = label / 10
        return (image - 0.5) / 0.25, label


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.layers(x))


def network(width, blocks):
    stem = nn.Sequential(nn.Conv2d(3, width, 7, stride=4, padding=3), nn.ReLU(inplace=True))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return nn.Sequential(stem, *(Block(width) for _ in range(blocks)), head)


class Average:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count):
        self.total += value * count
        self.count += count

    def __str__(self):
        return f"{self.total / self.count:.4f}"


def train(loader, model, criterion, optimizer, device, options):
    losses, accuracies = Average(), Average()
    model.train()
    begun = time.time()
    for number, (images, labels) in enumerate(loader, start=1):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, labels)

        losses.update(loss.item(), len(images))
        accuracies.update((output.argmax(1) == labels).float().mean().item(), len(images))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % options.print_every == 0:
            rate = number * options.batch_size / (time.time() - begun)
            print(f"{number}: loss {losses}, accuracy {accuracies}, {rate:.0f} images/s")
        if number == options.steps:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--print-every", type=int, default=10)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Images(1_000_000, options.size),
        batch_size=options.batch_size,
        num_workers=options.workers,
        pin_memory=device.type == "cuda",
    )
    model = network(options.width, options.blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    train(loader, model, nn.CrossEntropyLoss(), optimizer, device, options)


if __name__ == "__main__":
    main()
