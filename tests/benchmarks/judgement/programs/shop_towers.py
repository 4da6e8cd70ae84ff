"""Retrieve products of a large shop with two towers and in-batch negatives."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def tower(inputs, width, outputs):
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, outputs),
    )


class TwoTowers(nn.Module):
    def __init__(self, products, dim, width, sparse, device):
        super().__init__()
        self.products = nn.Embedding(products, dim, sparse=sparse, device=device)
        nn.init.normal_(self.products.weight, std=0.05)
        self.shopper = tower(dim, width, 128).to(device)
        self.product = tower(dim, width, 128).to(device)

    def forward(self, history, bought):
        shopper = self.shopper(self.products(history).mean(dim=1))
        product = self.product(self.products(bought))
        return F.normalize(shopper, dim=1), F.normalize(product, dim=1)


def make_batch(products, shoppers, history, device):
    """A few products sell much more often than the rest."""
    clicks = (
        torch.rand(shoppers, history + 1, device=device)
        .pow(3)
        .mul(products)
        .long()
        .clamp(max=products - 1)
    )
    return clicks[:, :-1].contiguous(), clicks[:, -1].contiguous()


def train_step(model, optimizers, history, bought, answer, temperature):
    shopper, product = model(history, bought)
    loss = F.cross_entropy(shopper @ product.T / temperature, answer)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--products", type=int, default=12_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=6144)
    parser.add_argument("--history", type=int, default=30)
    parser.add_argument("--temperature", type=float, default=0.07)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fused = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    model = TwoTowers(args.products, args.dim, args.width, sparse=args.fixed, device=device)
    if args.fixed:
        towers = [*model.shopper.parameters(), *model.product.parameters()]
        optimizers = [
            torch.optim.Adam(towers, lr=1e-3, fused=fused),
            torch.optim.SparseAdam(model.products.parameters(), lr=1e-3),
        ]
    else:
        optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)]
    batches = [make_batch(args.products, args.batch_size, args.history, device) for _ in range(16)]
    answer = torch.arange(args.batch_size, device=device)

    for step in range(args.steps):
        history, bought = batches[step % len(batches)]
        loss = train_step(model, optimizers, history, bought, answer, args.temperature)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
