"""Classify species of plants with a ResNet of timm, mixup and label smoothing."""

import argparse

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler


class Herbarium:
    """Photographs of plants, small enough to keep all of them in the memory of the card."""

    def __init__(self, count, size, species, device):
        self.images = torch.randint(
            0, 256, (count, 3, size, size), dtype=torch.uint8, device=device
        )
        self.labels = torch.randint(0, species, (count,), device=device)
        self.mean = torch.tensor([0.485, 0.456, 0.406], device=device).mul_(255).view(1, 3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225], device=device).mul_(255).view(1, 3, 1, 1)

    def batch(self, step, size):
        start = step * size % (len(self.images) - size + 1)
        images = self.images[start : start + size].float().sub_(self.mean).div_(self.std)
        return images, self.labels[start : start + size]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--model", default="resnet50d")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--species", type=int, default=1081)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    model = timm.create_model(args.model, pretrained=False, num_classes=args.species).to(device)
    if args.fixed:
        model = model.to(memory_format=torch.channels_last)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    scheduler = CosineLRScheduler(
        optimizer,
        t_initial=max(args.steps, 2),
        warmup_t=min(50, args.steps // 2),
        t_in_epochs=False,
    )
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=0.0, label_smoothing=0.1, num_classes=args.species)
    criterion = SoftTargetCrossEntropy()
    herbarium = Herbarium(args.images, args.size, args.species, device)

    model.train()
    for step in range(args.steps):
        images, labels = herbarium.batch(step, args.batch_size)
        if args.fixed:
            images = images.contiguous(memory_format=torch.channels_last)
        images, targets = mixup(images, labels)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images)
        loss = criterion(logits.float(), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step_update(step + 1)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.2e}")


if __name__ == "__main__":
    main()
