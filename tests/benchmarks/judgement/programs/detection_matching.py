"""Train a one-stage detector: a ResNet, a dense head, and anchors matched image by image."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet18
from torchvision.ops import box_iou, sigmoid_focal_loss

CLASSES = 20


class Detector(nn.Module):
    def __init__(self, anchors=9):
        super().__init__()
        net = resnet18(weights=None)
        self.body = nn.Sequential(*list(net.children())[:-3])  # stride 16
        self.tower = nn.Sequential(
            *(layer for _ in range(2) for layer in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()))
        )
        self.classes = nn.Conv2d(256, anchors * CLASSES, 3, padding=1)
        self.boxes = nn.Conv2d(256, anchors * 4, 3, padding=1)

    def forward(self, images):
        x = self.tower(self.body(images))
        batch = len(images)
        logits = self.classes(x).permute(0, 2, 3, 1).reshape(batch, -1, CLASSES)
        deltas = self.boxes(x).permute(0, 2, 3, 1).reshape(batch, -1, 4)
        return logits, deltas


def make_anchors(size, device):
    centers = (torch.arange(size // 16, device=device) + 0.5) * 16
    y, x = torch.meshgrid(centers, centers, indexing="ij")
    sides = torch.tensor(
        [(w * s, h * s) for s in (32, 64, 128) for w, h in ((1, 1), (0.7, 1.4), (1.4, 0.7))],
        device=device,
    )
    xy = torch.stack((x, y), -1).reshape(-1, 1, 2)
    return torch.cat((xy - sides / 2, xy + sides / 2), -1).reshape(-1, 4)


def encode(anchors, boxes):
    sides = anchors[:, 2:] - anchors[:, :2]
    centers = (anchors[:, 2:] + anchors[:, :2]) / 2
    box_sides = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1.0)
    box_centers = (boxes[:, 2:] + boxes[:, :2]) / 2
    return torch.cat(((box_centers - centers) / sides, torch.log(box_sides / sides)), -1)


def detection_loss(logits, deltas, anchors, targets):
    class_loss, box_loss, positives = 0.0, 0.0, 0
    for image, target in enumerate(targets):
        iou, matched = box_iou(anchors, target["boxes"]).max(dim=1)
        positive = iou >= 0.4
        onehot = torch.zeros_like(logits[image])
        onehot[positive, target["labels"][matched[positive]]] = 1.0
        class_loss = class_loss + sigmoid_focal_loss(logits[image], onehot, reduction="sum")
        wanted = encode(anchors[positive], target["boxes"][matched[positive]])
        box_loss = box_loss + F.smooth_l1_loss(deltas[image][positive], wanted, reduction="sum")
        positives += positive.sum().item()
    return (class_loss + box_loss) / max(positives, 1)


def detection_loss_with_weights(logits, deltas, anchors, targets):
    class_loss, box_loss, positives = 0.0, 0.0, 0
    for image, target in enumerate(targets):
        iou, matched = box_iou(anchors, target["boxes"]).max(dim=1)
        positive = (iou >= 0.4).float().unsqueeze(1)
        onehot = F.one_hot(target["labels"][matched], CLASSES) * positive
        class_loss = class_loss + sigmoid_focal_loss(logits[image], onehot, reduction="sum")
        wanted = encode(anchors, target["boxes"][matched])
        each = F.smooth_l1_loss(deltas[image], wanted, reduction="none")
        box_loss = box_loss + (each * positive).sum()
        positives = positives + positive.sum()
    return (class_loss + box_loss) / positives.clamp(min=1)


def make_targets(batch, size, device):
    targets = []
    for _ in range(batch):
        corner = torch.rand(12, 2, device=device) * size * 0.6
        sides = torch.rand(12, 2, device=device) * size * 0.3 + 24
        boxes = torch.cat((corner, corner + sides), -1)
        targets.append({"boxes": boxes, "labels": torch.randint(0, CLASSES, (12,), device=device)})
    return targets


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Detector().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    anchors = make_anchors(args.size, device)
    images = torch.randn(args.batch_size, 3, args.size, args.size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    targets = make_targets(args.batch_size, args.size, device)
    criterion = detection_loss_with_weights if args.fixed else detection_loss

    for step in range(args.steps):
        logits, deltas = model(images)
        loss = criterion(logits, deltas, anchors, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
