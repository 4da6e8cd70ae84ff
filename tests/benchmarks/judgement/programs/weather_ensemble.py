"""Sample an ensemble of weather forecasts with a diffusion model on a grid of the globe."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.mlp(self.norm2(x))


class Denoiser(nn.Module):
    """A transformer on patches of the noisy state and of the state a day before."""

    def __init__(self, variables, patch=4, width=768, layers=12, heads=12, tokens=512):
        super().__init__()
        self.into = nn.Conv2d(2 * variables, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.levels = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.out = nn.ConvTranspose2d(width, variables, patch, stride=patch)

    def forward(self, x, before, level):
        x = self.into(torch.cat((x, before), dim=1))
        shape = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2) + self.places + self.levels.weight[level]
        for block in self.blocks:
            x = block(x)
        return self.out(x.transpose(1, 2).unflatten(2, shape))


class Sampler:
    """Ancestral sampling with a cosine schedule."""

    def __init__(self, model, levels, fixed):
        self.model, self.levels, self.fixed = model, levels, fixed
        kept = [math.cos(0.5 * math.pi * (i + 1) / (levels + 1)) ** 2 for i in range(levels)]
        self.kept = [1.0, *kept]

    def noise(self, x):
        if self.fixed:
            return torch.randn_like(x)
        return torch.randn(x.shape).to(x.device)

    def denoise(self, x, before, level):
        kept, kept_next = self.kept[level], self.kept[level - 1]
        alpha = kept / kept_next
        dtype = self.model.places.dtype
        guess = self.model(x.to(dtype), before, level - 1).float()
        x = (x - (1 - alpha) / math.sqrt(1 - kept) * guess) / math.sqrt(alpha)
        if level > 1:
            sigma = math.sqrt((1 - kept_next) / (1 - kept) * (1 - alpha))
            x = x + sigma * self.noise(x)
        return x

    def forecast(self, before):
        x = torch.randn(before.shape, device=before.device)
        before = before.to(self.model.places.dtype)
        for level in range(self.levels, 0, -1):
            x = self.denoise(x, before, level)
        return x.clamp(-5, 5)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--variables", type=int, default=20)
    parser.add_argument("--levels", type=int, default=40)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = Denoiser(args.variables, layers=args.layers).to(device, dtype).eval()
    sampler = Sampler(model, args.levels, args.fixed)
    state = torch.randn(args.members, args.variables, 64, 128, device=device)
    for day in range(args.days):
        state = sampler.forecast(state)
        print(f"day {day}: spread {state.std(dim=0).mean().item():.4f}")


if __name__ == "__main__":
    main()
