"""Train a SegFormer of transformers and follow the mean IoU of the training batches."""

import argparse

import torch
import torch.nn.functional as F
from transformers import SegformerConfig, SegformerForSemanticSegmentation

CLASSES = 60


class MeanIoU:
    """Intersections and unions of each class since the last reset."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.intersection = [0] * CLASSES
        self.union = [0] * CLASSES

    def update(self, prediction, target):
        for c in range(CLASSES):
            predicted, wanted = prediction == c, target == c
            self.intersection[c] += (predicted & wanted).sum().item()
            self.union[c] += (predicted | wanted).sum().item()

    def compute(self):
        pairs = zip(self.intersection, self.union, strict=True)
        ious = [i / u for i, u in pairs if u > 0]
        return sum(ious) / max(len(ious), 1)


class MeanIoUOnDevice:
    """A confusion matrix that stays on the device until it is asked for."""

    def __init__(self, device):
        self.matrix = torch.zeros(CLASSES * CLASSES, dtype=torch.int64, device=device)

    def reset(self):
        self.matrix.zero_()

    def update(self, prediction, target):
        cells = (target * CLASSES + prediction).flatten()
        self.matrix.scatter_add_(0, cells, torch.ones_like(cells))

    def compute(self):
        matrix = self.matrix.view(CLASSES, CLASSES).double()
        both = matrix.diagonal()
        union = matrix.sum(0) + matrix.sum(1) - both
        return (both / union.clamp(min=1)).sum().item() / max((union > 0).sum().item(), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = SegformerForSemanticSegmentation(SegformerConfig(num_labels=CLASSES)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5, fused=device.type == "cuda")
    images = torch.randn(4, args.batch_size, 3, args.size, args.size, device=device)
    masks = torch.randint(0, CLASSES, (4, args.batch_size, args.size, args.size), device=device)
    metric = MeanIoUOnDevice(device) if args.fixed else MeanIoU()
    model.train()

    for step in range(args.steps):
        pixels, labels = images[step % 4], masks[step % 4]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(pixel_values=pixels).logits
            logits = F.interpolate(logits, size=labels.shape[-2:], mode="bilinear")
            loss = F.cross_entropy(logits, labels)
        metric.update(logits.detach().argmax(dim=1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} mIoU {metric.compute():.4f}")
            metric.reset()


if __name__ == "__main__":
    main()
