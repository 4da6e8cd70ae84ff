"""Predict clicks on advertisements with a deep and cross network (DCN v2)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

FIELDS = {
    "hour": 24,
    "weekday": 7,
    "device": 5,
    "system": 9,
    "browser": 14,
    "gender": 3,
    "age": 8,
    "country": 60,
    "slot": 12,
    "category": 400,
    "advertiser": 3000,
    "campaign": 20000,
    "creative": 80000,
    "publisher": 5000,
    "query": 50000,
    "city": 4000,
}


class FieldTable(nn.Module):
    """Vectors of the values of all fields, one field after the other in one table."""

    def __init__(self, cardinalities, dim, fixed):
        super().__init__()
        sizes = torch.tensor(cardinalities)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes)
        self.table = nn.Parameter(0.01 * torch.randn(sum(cardinalities), dim))
        self.fixed = fixed

    def forward(self, ids):
        rows = ids + self.offsets
        if self.fixed:
            return F.embedding(rows, self.table).flatten(1)
        return self.table[rows].flatten(1)


class Cross(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x0):
        x = x0
        for layer in self.layers:
            x = torch.addcmul(x, x0, layer(x))
        return x


class Ranker(nn.Module):
    def __init__(self, cardinalities, dim, dense, hidden, crosses, fixed):
        super().__init__()
        self.fields = FieldTable(cardinalities, dim, fixed)
        width = len(cardinalities) * dim + 64
        self.dense = nn.Sequential(nn.Linear(dense, 64), nn.ReLU())
        self.cross = Cross(width, crosses)
        layers, inputs = [], width
        for outputs in hidden:
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            inputs = outputs
        self.deep = nn.Sequential(*layers)
        self.head = nn.Linear(width + inputs, 1)

    def forward(self, ids, numbers):
        x = torch.cat((self.fields(ids), self.dense(numbers)), dim=1)
        return self.head(torch.cat((self.cross(x), self.deep(x)), dim=1)).squeeze(1)


def make_log(rows, cardinalities, dense, device):
    """A click log: few values of a field are frequent, many are rare."""
    sizes = torch.tensor(cardinalities)
    ids = (torch.rand(rows, len(sizes)).pow(3) * sizes).long().clamp_(max=sizes - 1)
    numbers = torch.randn(rows, dense)
    clicks = (torch.rand(rows) < 0.1).float()
    columns = [ids, numbers, clicks]
    return [column.pin_memory() for column in columns] if device.type == "cuda" else columns


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=32768)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--dim", type=int, default=48)
    parser.add_argument("--dense", type=int, default=13)
    parser.add_argument("--hidden", type=int, nargs="+", default=[2048, 1024, 512])
    parser.add_argument("--crosses", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cardinalities = list(FIELDS.values())
    log = make_log(args.batches * args.batch_size, cardinalities, args.dense, device)
    model = Ranker(cardinalities, args.dim, args.dense, args.hidden, args.crosses, args.fixed).to(
        device
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=device.type == "cuda")

    average = torch.zeros((), device=device)
    for step in range(args.steps):
        start = step % args.batches * args.batch_size
        ids, numbers, clicks = (
            column[start : start + args.batch_size].to(device, non_blocking=True) for column in log
        )
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(ids, numbers)
        loss = F.binary_cross_entropy_with_logits(logits.float(), clicks)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        average.lerp_(loss.detach(), 0.02 if step else 1.0)
        if step % 100 == 0:
            print(f"step {step} log loss {average.item():.4f}")


if __name__ == "__main__":
    main()
