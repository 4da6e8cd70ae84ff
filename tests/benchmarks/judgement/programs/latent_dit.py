"""Train a class-conditional diffusion transformer on image latents (DiT)."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TimeEmbedding(nn.Module):
    def __init__(self, width, size=256):
        super().__init__()
        frequencies = torch.exp(-math.log(10000) * torch.arange(size // 2) / (size // 2))
        self.register_buffer("frequencies", frequencies)
        self.mlp = nn.Sequential(nn.Linear(size, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        angles = t.float().unsqueeze(1) * self.frequencies
        return self.mlp(torch.cat((angles.cos(), angles.sin()), dim=1))


class DiTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        nn.init.zeros_(self.modulation[1].weight)
        nn.init.zeros_(self.modulation[1].bias)

    def attention(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attention(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self, size, channels, patch, width, heads, layers, classes):
        super().__init__()
        self.into = nn.Linear(channels * patch * patch, width)
        self.position = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.time = TimeEmbedding(width)
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.out = nn.Linear(width, channels * patch * patch)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, patches, t, labels):
        condition = self.time(t) + self.label(labels)
        x = self.into(patches) + self.position
        for block in self.blocks:
            x = block(x, condition)
        return self.out(self.norm(x))


def patchify(latents, patch):
    return F.pixel_unshuffle(latents, patch).flatten(2).transpose(1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    patch, channels = 2, 4
    model = DiT(args.size, channels, patch, args.width, args.heads, args.layers, args.classes)
    model = torch.compile(model.to(device))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0, fused=device.type == "cuda"
    )
    betas = torch.linspace(1e-4, 0.02, 1000, device=device)
    alphas = torch.cumprod(1 - betas, dim=0)
    count = 64 * args.batch_size
    latents = torch.randn(count, channels, args.size, args.size, device=device)
    latents = patchify(0.8 * latents, patch).contiguous()
    labels = torch.randint(0, args.classes, (count,), device=device)

    for step in range(args.steps):
        rows = torch.randint(0, count, (args.batch_size,), device=device)
        clean, label = latents[rows], labels[rows]
        dropped = torch.rand(args.batch_size, device=device) < 0.1
        label = torch.where(dropped, args.classes, label)
        t = torch.randint(0, len(alphas), (args.batch_size,), device=device)
        alpha = alphas[t].view(-1, 1, 1)
        noise = torch.randn_like(clean)
        noisy = alpha.sqrt() * clean + (1 - alpha).sqrt() * noise
        with torch.autocast(device.type, dtype=torch.bfloat16):
            predicted = model(noisy, t, label)
        loss = F.mse_loss(predicted.float(), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
