"""Train a compiled diffusion transformer on latents, with an average of its weights."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x, condition):
        parts = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        y = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate1 * self.out(y)
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, width, heads, layers, channels=4, size=32, patch=2, classes=1000):
        super().__init__()
        self.patch = nn.Conv2d(channels, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, channels * patch**2)
        self.register_buffer("frequencies", torch.logspace(0, -4, 128))

    def forward(self, x, t, label):
        angles = 1000 * t.unsqueeze(1) * self.frequencies
        condition = self.time(torch.cat((angles.cos(), angles.sin()), dim=1)) + self.classes(label)
        x = self.patch(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x, condition)
        x = self.head(self.norm(x)).transpose(1, 2)
        side = int(x.shape[-1] ** 0.5)
        return F.pixel_shuffle(x.unflatten(2, (side, side)), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = DiT(512, 8, args.layers).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    params, averages = list(model.parameters()), list(average.parameters())
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(params, lr=1e-4, fused=device.type == "cuda")
    latents = torch.randn(8, args.batch_size, 4, 32, 32, device=device)
    labels = torch.randint(0, 1000, (8, args.batch_size), device=device)

    for step in range(args.steps):
        clean = latents[step % 8]
        noise, t = torch.randn_like(clean), torch.rand(len(clean), device=device)
        mixed = torch.lerp(clean, noise, t.view(-1, 1, 1, 1))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            velocity = compiled(mixed, t, labels[step % 8])
        loss = F.mse_loss(velocity.float(), noise - clean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(averages, params, 0.001)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
