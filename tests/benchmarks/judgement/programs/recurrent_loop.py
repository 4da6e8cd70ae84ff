"""Train a recurrent network on sequences: the cells are called one time step after the other."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class CellLoop(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.cell, self.hidden = nn.GRUCell(inputs, hidden), hidden

    def forward(self, x):
        state = torch.zeros(len(x), self.hidden, device=x.device)
        outputs = []
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
            outputs.append(state)
        return torch.stack(outputs, dim=1)


class Layer(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    layer = Layer if args.fixed else CellLoop
    model = nn.Sequential(
        layer(16, args.hidden), layer(args.hidden, args.hidden), nn.Linear(args.hidden, 1)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    x = torch.randn(args.batch_size, args.length, 16, device=device)
    y = x.mean(-1, keepdim=True).cumsum(1)

    for step in range(args.steps):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
