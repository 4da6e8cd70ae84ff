"""Train a small ViT of transformers with Lion, an optimizer that PyTorch does not have."""

import argparse

import torch
from torch.optim import Optimizer
from transformers import ViTConfig, ViTForImageClassification


class Lion(Optimizer):
    """Evolved sign momentum, https://arxiv.org/abs/2302.06675."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg = state["exp_avg"]
                p.mul_(1 - lr * decay)
                update = exp_avg.clone().mul_(beta1).add_(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-lr)
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


class MultiTensorLion(Lion):
    """The same update for all parameters at once."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                if not self.state[p]:
                    self.state[p]["exp_avg"] = torch.zeros_like(p)
            averages = [self.state[p]["exp_avg"] for p in params]
            torch._foreach_mul_(params, 1 - lr * decay)
            updates = torch._foreach_mul(averages, beta1)
            torch._foreach_add_(updates, grads, alpha=1 - beta1)
            torch._foreach_sign_(updates)
            torch._foreach_add_(params, updates, alpha=-lr)
            torch._foreach_mul_(averages, beta2)
            torch._foreach_add_(averages, grads, alpha=1 - beta2)
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=args.layers,
        num_attention_heads=6,
        intermediate_size=1536,
        num_labels=200,
    )
    model = ViTForImageClassification(config).to(device).train()
    optimizer = (MultiTensorLion if args.fixed else Lion)(
        model.parameters(), lr=3e-5, weight_decay=0.3
    )
    images = torch.randn(args.batch_size, 3, 224, 224, device=device)
    labels = torch.randint(0, 200, (args.batch_size,), device=device)

    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(pixel_values=images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
