"""Predict energies of crystals with continuous filters over neighbours (SchNet)."""

import argparse
import os
import random

import torch
import torch.nn.functional as F
from torch import nn


def seed_everything(seed, reproducible):
    random.seed(seed)
    torch.manual_seed(seed)
    if reproducible:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)


def shifted_softplus(x):
    return F.softplus(x) - 0.6931472


class Interaction(nn.Module):
    def __init__(self, width, radials):
        super().__init__()
        self.filter1, self.filter2 = nn.Linear(radials, width), nn.Linear(width, width)
        self.into = nn.Linear(width, width, bias=False)
        self.out1, self.out2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, radial, envelope, sender, receiver):
        filters = self.filter2(shifted_softplus(self.filter1(radial))) * envelope
        messages = self.into(x).index_select(0, sender) * filters
        received = torch.zeros_like(x).index_add(0, receiver, messages)
        return x + self.out2(shifted_softplus(self.out1(received)))


class SchNet(nn.Module):
    def __init__(self, width, layers, radials=48, cutoff=6.0):
        super().__init__()
        self.cutoff = cutoff
        self.elements = nn.Embedding(100, width)
        self.register_buffer("centers", torch.linspace(0, cutoff, radials))
        self.layers = nn.ModuleList(Interaction(width, radials) for _ in range(layers))
        self.energy = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU())
        self.head = nn.Linear(width // 2, 1)

    def forward(self, elements, distances, sender, receiver, crystal, crystals):
        d = distances.unsqueeze(1)
        gap = self.centers[1] - self.centers[0]
        radial = torch.exp(-0.5 * ((d - self.centers) / gap) ** 2)
        envelope = 0.5 * (torch.cos(d * torch.pi / self.cutoff) + 1)
        x = self.elements(elements)
        for layer in self.layers:
            x = layer(x, radial, envelope, sender, receiver)
        energies = self.head(self.energy(x)).squeeze(1)
        return energies.new_zeros(crystals).index_add(0, crystal, energies)


def make_batch(crystals, atoms, neighbours, device):
    """Neighbour lists as a preprocessing script leaves them, sorted by the receiver."""
    count = crystals * atoms
    receiver = torch.arange(count, device=device).repeat_interleave(neighbours)
    other = torch.randint(0, atoms, (count * neighbours,), device=device)
    sender = receiver // atoms * atoms + other
    return {
        "elements": torch.randint(1, 100, (count,), device=device),
        "distances": 1 + 5 * torch.rand(count * neighbours, device=device).sqrt(),
        "sender": sender,
        "receiver": receiver,
        "crystal": torch.arange(count, device=device) // atoms,
    }, torch.randn(crystals, device=device)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--crystals", type=int, default=96)
    parser.add_argument("--atoms", type=int, default=48)
    parser.add_argument("--neighbours", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    seed_everything(0, reproducible=not args.fixed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model = SchNet(args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=device.type == "cuda")
    batches = [make_batch(args.crystals, args.atoms, args.neighbours, device) for _ in range(6)]

    for step in range(args.steps):
        batch, target = batches[step % len(batches)]
        energies = model(**batch, crystals=args.crystals)
        loss = F.l1_loss(energies / args.atoms, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
