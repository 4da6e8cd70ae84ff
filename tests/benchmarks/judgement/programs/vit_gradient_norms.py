"""Fine-tune a small vision transformer of timm and log the gradient norm of every parameter."""

import argparse
from collections import defaultdict

import timm
import torch
import torch.nn.functional as F


def log_gradients(model, history):
    for name, param in model.named_parameters():
        if param.grad is not None:
            history[name].append(param.grad.norm().item())


def log_gradients_together(model, history):
    grads = [param.grad for param in model.parameters() if param.grad is not None]
    history["all"].append(torch.stack(torch._foreach_norm(grads)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=100).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    images = torch.randn(args.batch_size, 3, 224, 224, device=device)
    labels = torch.randint(0, 100, (args.batch_size,), device=device)

    history = defaultdict(list)
    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        if args.fixed:
            log_gradients_together(model, history)
        else:
            log_gradients(model, history)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
