"""Tell jets of top quarks from others with a transformer over their particles."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class ParticleBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, padding):
        h = self.norm1(x)
        x = x + self.attend(h, padding)
        return x + self.mlp(self.norm2(x))

    def attend(self, h, padding):
        out, _ = self.attention(h, h, h, key_padding_mask=padding)
        return out


class LeanParticleBlock(ParticleBlock):
    def attend(self, h, padding):
        out, _ = self.attention(h, h, h, key_padding_mask=padding, need_weights=False)
        return out


class JetTagger(nn.Module):
    def __init__(self, block, features, width, heads, layers, classes):
        super().__init__()
        self.into = nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, particles, padding):
        x = self.into(particles)
        for block in self.blocks:
            x = block(x, padding)
        kept = (~padding).unsqueeze(2)
        pooled = (self.norm(x) * kept).sum(dim=1) / kept.sum(dim=1)
        return self.head(pooled)


def make_jets(count, particles, device):
    """Momenta and identities of particles, ordered by momentum and padded."""
    momentum = torch.rand(count, particles, 1, device=device).log().neg()
    momentum = momentum.sort(dim=1, descending=True).values
    other = torch.randn(count, particles, 15, device=device)
    number = torch.randint(particles // 3, particles + 1, (count, 1), device=device)
    padding = torch.arange(particles, device=device) >= number
    return torch.cat((momentum, other), dim=2), padding


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--particles", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    block = LeanParticleBlock if args.fixed else ParticleBlock
    model = JetTagger(block, 16, args.width, 8, args.layers, classes=10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    jets = [make_jets(args.batch_size, args.particles, device) for _ in range(6)]
    labels = torch.randint(0, 10, (6, args.batch_size), device=device)

    for step in range(args.steps):
        particles, padding = jets[step % 6]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(particles, padding)
        loss = F.cross_entropy(logits.float(), labels[step % 6])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
