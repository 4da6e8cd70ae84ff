"""Predict the solubility of molecules with a graph network of GINE layers."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Molecules(Dataset):
    """Trees of atoms with a few rings, bonds in both directions, atoms masked at random."""

    def __init__(self, count, smallest, largest, seed=0):
        rng = np.random.default_rng(seed)
        self.molecules = []
        for atoms in rng.integers(smallest, largest + 1, count):
            child = np.arange(1, atoms)
            parent = np.maximum(child - rng.integers(1, 4, atoms - 1), 0)
            ring = rng.integers(0, atoms, (2, 3))
            bonds = np.concatenate((np.stack((child, parent)), ring), axis=1)
            kinds = rng.integers(0, 4, bonds.shape[1])
            self.molecules.append(
                {
                    "atoms": rng.integers(1, 40, atoms),
                    "charges": rng.integers(0, 5, atoms),
                    "bonds": np.concatenate((bonds, bonds[::-1]), axis=1),
                    "kinds": np.concatenate((kinds, kinds)),
                    "target": rng.standard_normal(1, dtype=np.float32),
                }
            )

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, index):
        molecule = dict(self.molecules[index])
        hidden = np.random.random(len(molecule["atoms"])) < 0.05
        molecule["atoms"] = np.where(hidden, 0, molecule["atoms"])
        return molecule


def merge(molecules):
    """One large graph of many small ones, which are not connected."""
    atoms, charges, bonds, kinds, owners, targets = [], [], [], [], [], []
    offset = 0
    for number, molecule in enumerate(molecules):
        count = len(molecule["atoms"])
        atoms.append(torch.from_numpy(molecule["atoms"]))
        charges.append(torch.from_numpy(molecule["charges"]))
        bonds.append(torch.from_numpy(molecule["bonds"]) + offset)
        kinds.append(torch.from_numpy(molecule["kinds"]))
        owners.append(torch.full((count,), number))
        targets.append(torch.from_numpy(molecule["target"]))
        offset += count
    return {
        "atoms": torch.cat(atoms),
        "charges": torch.cat(charges),
        "bonds": torch.cat(bonds, dim=1),
        "kinds": torch.cat(kinds),
        "owners": torch.cat(owners),
        "targets": torch.cat(targets),
    }


class GINELayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.kinds = nn.Embedding(4, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x, source, sink, kinds):
        message = F.relu(x.index_select(0, source) + self.kinds(kinds))
        gathered = torch.zeros_like(x).index_add_(0, sink, message)
        return x + F.relu(self.norm(self.mlp(x + gathered)))


class GINE(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.atoms, self.charges = nn.Embedding(40, width), nn.Embedding(5, width)
        self.layers = nn.ModuleList(GINELayer(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch):
        x = self.atoms(batch["atoms"]) + self.charges(batch["charges"])
        source, sink = batch["bonds"]
        for layer in self.layers:
            x = layer(x, source, sink, batch["kinds"])
        pooled = x.new_zeros(len(batch["targets"]), x.shape[1])
        return self.head(pooled.index_add_(0, batch["owners"], x)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=768)
    parser.add_argument("--molecules", type=int, default=40000)
    parser.add_argument("--smallest", type=int, default=12)
    parser.add_argument("--largest", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    dataset = Molecules(args.molecules, args.smallest, args.largest)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=RandomSampler(dataset, True, args.steps * args.batch_size),
        num_workers=args.workers,
        collate_fn=merge if args.fixed else list,
        pin_memory=cuda,
        prefetch_factor=4 if args.workers else None,
    )
    model = GINE(args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=cuda)

    for step, batch in enumerate(loader):
        if not args.fixed:
            batch = merge(batch)
            batch = {k: v.pin_memory() if cuda else v for k, v in batch.items()}
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        loss = F.l1_loss(model(batch), batch["targets"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
