"""Train a DLRM-like recommender: embedding bags of categorical features, and an MLP on top."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

TABLES, ROWS, WIDTH, DENSE, HOT = 26, 100_000, 64, 13, 4


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=False) for _ in range(TABLES)
        )
        self.bottom = nn.Sequential(nn.Linear(DENSE, 256), nn.ReLU(), nn.Linear(256, WIDTH))
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(
            nn.Linear(WIDTH + pairs, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
        )
        self.register_buffer("upper", torch.triu_indices(TABLES + 1, TABLES + 1, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        bags = [table(ids) for table, ids in zip(self.tables, sparse, strict=True)]
        features = torch.stack([x, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        pairs = products[:, self.upper[0], self.upper[1]]
        return self.top(torch.cat((x, pairs), dim=1)).squeeze(1)


def to_device(batch, device):
    dense = batch["dense"].to(device)
    sparse = [ids.to(device) for ids in batch["sparse"]]
    return dense, sparse, batch["label"].to(device)


def to_device_at_once(batch, device):
    moved = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    return moved["dense"], moved["sparse"].unbind(0), moved["label"]


def make_batch(size):
    return {
        "dense": torch.randn(size, DENSE),
        "sparse": [torch.randint(0, ROWS, (size, HOT)) for _ in range(TABLES)],
        "label": torch.randint(0, 2, (size,)).float(),
    }


def pinned(batch):
    batch = dict(batch, sparse=torch.stack(batch["sparse"]))
    return {name: value.pin_memory() for name, value in batch.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Recommender().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [make_batch(args.batch_size) for _ in range(8)]
    if args.fixed:
        batches = [pinned(batch) for batch in batches]

    for step in range(args.steps):
        move = to_device_at_once if args.fixed else to_device
        dense, sparse, label = move(batches[step % len(batches)], device)
        loss = F.binary_cross_entropy_with_logits(model(dense, sparse), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
