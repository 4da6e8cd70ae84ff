"""Train an FCN of torchvision for segmentation, careful about GPU memory."""

import argparse

import torch
import torch.nn.functional as F
from torchvision.models.segmentation import fcn_resnet50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=21)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(args.batch_size, 3, args.size, args.size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 21, (args.batch_size, args.size, args.size), device=device)

    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images)["out"], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not args.fixed:
            torch.cuda.empty_cache()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
