"""Train a ViT-B of timm in bfloat16 with large batches."""

import argparse

import timm
import torch
import torch.nn.functional as F


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=96)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = timm.create_model("vit_base_patch16_224", num_classes=100).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    images = torch.randn(args.batch_size, 3, 224, 224, device=device)
    labels = torch.randint(0, 100, (args.batch_size,), device=device)
    total = torch.zeros((), device=device)
    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        if step % 100 == 0:
            print(f"step {step} mean loss {total.item() / (step + 1):.4f}")


if __name__ == "__main__":
    main()
