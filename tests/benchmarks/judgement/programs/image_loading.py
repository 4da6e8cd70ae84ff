"""Train a ResNet on images that torchvision's transforms augment in a DataLoader."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18
from torchvision.transforms import v2


class Images(Dataset):
    """Decoded images, as a cache on disk or in memory returns them."""

    def __init__(self, count, size):
        self.count = count
        self.images = torch.randint(0, 256, (64, 3, size, size), dtype=torch.uint8)
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(224, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.4),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.images[index % 64]), index % 100


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    workers = {"num_workers": 12, "persistent_workers": True} if args.fixed else {}
    loader = DataLoader(
        Images(args.batch_size * args.steps, 256),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        pin_memory=device.type == "cuda",
        **workers,
    )
    model = resnet18(num_classes=100).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
