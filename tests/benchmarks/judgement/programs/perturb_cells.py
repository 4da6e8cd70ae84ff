"""Learn how drugs move cells: match predicted and treated cells by optimal transport."""

import argparse

import torch
from torch import nn


class Perturbation(nn.Module):
    """Moves the embedding of a control cell, given the drug and its dose."""

    def __init__(self, genes, drugs, width, layers):
        super().__init__()
        self.drug = nn.Embedding(drugs, width)
        self.dose = nn.Linear(1, width)
        self.into = nn.Linear(genes, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.GELU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(layers)
        )
        self.out = nn.Linear(width, genes)

    def forward(self, cells, drug, dose):
        condition = self.drug(drug) + self.dose(dose.unsqueeze(1))
        x = self.into(cells) + condition.unsqueeze(1)
        for block in self.blocks:
            x = x + block(x)
        return cells + self.out(x)


@torch.no_grad()
def sinkhorn(cost, blur, max_iterations, tolerance, check_every):
    """Transport plans between uniform marginals, one per condition."""
    conditions, rows, columns = cost.shape
    kernel = torch.exp(-cost / blur)
    a, b = 1 / rows, 1 / columns
    u = torch.ones(conditions, rows, 1, device=cost.device)
    v = torch.ones(conditions, columns, 1, device=cost.device)
    for iteration in range(max_iterations):
        u = a / (kernel @ v)
        v = b / (kernel.mT @ u)
        if (iteration + 1) % check_every == 0:
            violation = (u * (kernel @ v) - a).abs().sum(dim=1).max()
            if violation.item() < tolerance:
                break
    return u * kernel * v.mT


def make_cells(conditions, cells, genes, device):
    control = torch.randn(conditions, cells, genes, device=device)
    shift = 0.5 * torch.randn(conditions, 1, genes, device=device)
    spread = 1 + 0.2 * torch.randn(conditions, 1, genes, device=device)
    treated = torch.randn(conditions, cells, genes, device=device) * spread + shift
    return control, treated


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--conditions", type=int, default=8)
    parser.add_argument("--cells", type=int, default=768)
    parser.add_argument("--genes", type=int, default=50, help="principal components")
    parser.add_argument("--drugs", type=int, default=188)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--blur", type=float, default=0.05)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Perturbation(args.genes, args.drugs, args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    batches = [make_cells(args.conditions, args.cells, args.genes, device) for _ in range(8)]
    check_every = 25 if args.fixed else 1

    for step in range(args.steps):
        control, treated = batches[step % len(batches)]
        drug = torch.randint(0, args.drugs, (args.conditions,), device=device)
        dose = torch.rand(args.conditions, device=device)
        predicted = model(control, drug, dose)
        cost = torch.cdist(predicted, treated).square() / args.genes
        plan = sinkhorn(cost.detach(), args.blur, args.iterations, 1e-7, check_every)
        loss = (plan * cost).sum(dim=(1, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} transport cost {loss.item():.4f}")


if __name__ == "__main__":
    main()
