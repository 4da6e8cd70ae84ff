"""Segment frames of a dashboard camera with SegFormer and count the pixels of each class."""

import argparse

import torch
from torch import nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation


def preprocess(frames, mean, std):
    return (frames.float() / 255 - mean) / std


@torch.no_grad()
def segment(model, frames, mean, std, device, fixed):
    """Maps of classes, at the size of the frames."""
    pixels = preprocess(frames.to(device, non_blocking=True), mean, std)
    outputs = model(pixel_values=pixels)
    logits = outputs.logits if fixed else outputs.logits.cpu()
    upsampled = nn.functional.interpolate(
        logits, size=frames.shape[-2:], mode="bilinear", align_corners=False
    )
    return upsampled.argmax(dim=1).to(torch.uint8).cpu()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--height", type=int, default=512)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--classes", type=int, default=19)
    parser.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3])
    parser.add_argument("--decoder", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = SegformerConfig(
        num_labels=args.classes,
        depths=args.depths,
        hidden_sizes=[64, 128, 320, 512],
        decoder_hidden_size=args.decoder,
    )
    model = SegformerForSemanticSegmentation(config).to(device).eval()
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], device=device).view(3, 1, 1)

    clips = []
    for _ in range(8):
        size = (args.batch_size, 3, args.height, args.width)
        clip = torch.randint(0, 256, size, dtype=torch.uint8)
        clips.append(clip.pin_memory() if device.type == "cuda" else clip)

    road = 0.0
    for step in range(args.steps):
        maps = segment(model, clips[step % len(clips)], mean, std, device, args.fixed)
        road += (maps == 0).float().mean().item()
        if step % 50 == 0:
            print(f"step {step} share of road {road / (step + 1):.4f}")


if __name__ == "__main__":
    main()
