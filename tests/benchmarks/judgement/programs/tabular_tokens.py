"""Train an FT-Transformer on a table: each numerical feature becomes a token."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class FeatureLayers(nn.Module):
    """A linear layer per feature."""

    def __init__(self, features, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, width) for _ in range(features))

    def forward(self, x):
        tokens = []
        for i, layer in enumerate(self.layers):
            tokens.append(layer(x[:, i : i + 1]))
        return torch.stack(tokens, dim=1)


class FeatureWeights(nn.Module):
    """The same with the weights of all features in one tensor."""

    def __init__(self, features, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, width).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.empty(features, width).uniform_(-1, 1))

    def forward(self, x):
        return torch.addcmul(self.bias, x.unsqueeze(-1), self.weight)


class FTTransformer(nn.Module):
    def __init__(self, tokenizer, width, layers=4, heads=8):
        super().__init__()
        self.tokenizer = tokenizer
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        tokens = self.tokenizer(x)
        tokens = torch.cat((self.cls.expand(len(x), -1, -1), tokens), dim=1)
        return self.head(self.encoder(tokens)[:, 0]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--features", type=int, default=90)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    tokenizer = (FeatureWeights if args.fixed else FeatureLayers)(args.features, args.width)
    model = FTTransformer(tokenizer, args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    rows = torch.randn(50_000, args.features, device=device)
    years = rows[:, :10].sum(dim=1) + 0.1 * torch.randn(50_000, device=device)

    total = torch.zeros((), device=device)
    for step in range(args.steps):
        chosen = torch.randint(0, len(rows), (args.batch_size,), device=device)
        loss = F.mse_loss(model(rows[chosen]), years[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if (step + 1) % 100 == 0:
            print(f"step {step} mean loss {total.item() / 100:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
