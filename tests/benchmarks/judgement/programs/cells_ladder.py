"""Learn the states of single cells with a ladder of latent variables (counts of genes)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Distribution, NegativeBinomial, Normal


class Rung(nn.Module):
    """One latent variable, with a prior from above and a posterior that sees the cell too."""

    def __init__(self, width, latent):
        super().__init__()
        self.prior = nn.Linear(width, 2 * latent)
        self.posterior = nn.Linear(2 * width, 2 * latent)
        self.merge = nn.Linear(latent, width)

    def forward(self, state, evidence):
        loc, scale = self.prior(state).chunk(2, dim=1)
        prior = Normal(loc, F.softplus(scale) + 1e-4)
        loc, scale = self.posterior(torch.cat((state, evidence), dim=1)).chunk(2, dim=1)
        posterior = Normal(loc, F.softplus(scale) + 1e-4)
        z = posterior.rsample()
        divergence = (posterior.log_prob(z) - prior.log_prob(z)).sum(dim=1)
        return state + F.silu(self.merge(z)), divergence


class CellLadder(nn.Module):
    def __init__(self, genes, width, latent, rungs):
        super().__init__()
        self.encoder = nn.Linear(genes, width)
        self.steps = nn.ModuleList(nn.Linear(width, width) for _ in range(rungs))
        self.rungs = nn.ModuleList(Rung(width, latent) for _ in range(rungs))
        self.top = nn.Parameter(torch.zeros(1, width))
        self.decoder = nn.Linear(width, genes)
        self.dispersion = nn.Parameter(torch.zeros(genes))

    def forward(self, counts):
        x = F.silu(self.encoder(torch.log1p(counts)))
        evidence = []
        for layer in self.steps:
            x = x + F.silu(layer(x))
            evidence.append(x)
        state = self.top.expand(len(counts), -1)
        divergence = 0.0
        for rung, seen in zip(self.rungs, reversed(evidence), strict=False):
            state, change = rung(state, seen)
            divergence = divergence + change
        likelihood = NegativeBinomial(total_count=self.dispersion.exp(), logits=self.decoder(state))
        return likelihood.log_prob(counts).sum(dim=1), divergence


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--latent", type=int, default=16)
    parser.add_argument("--rungs", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    if args.fixed:
        Distribution.set_default_validate_args(False)
    model = CellLadder(args.genes, args.width, args.latent, args.rungs).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=device.type == "cuda")
    rates = torch.rand(16 * args.batch_size, args.genes, device=device).pow(4).mul(20)
    cells = torch.poisson(rates).split(args.batch_size)

    for step in range(args.steps):
        likelihood, divergence = model(cells[step % len(cells)])
        beta = min(1.0, (step + 1) / args.warmup)
        loss = (beta * divergence - likelihood).mean() / args.genes
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} divergence {divergence.mean().item():.3f}")


if __name__ == "__main__":
    main()
