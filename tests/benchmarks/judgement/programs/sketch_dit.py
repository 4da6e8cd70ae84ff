"""Train a diffusion transformer (DiT-S/2) with rectified flow on latents of images."""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = (
            self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        )
        batch, length, width = x.shape
        h = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = (
            self.qkv(h).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + gate1 * self.proj(h)
        h = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.mlp(h)


class DiT(nn.Module):
    def __init__(self, size, channels, patch, width, depth, heads, classes):
        super().__init__()
        self.patch, self.channels = patch, channels
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.register_buffer(
            "frequencies", torch.exp(-math.log(10000) * torch.arange(128) / 128), persistent=False
        )
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.out = nn.Linear(width, patch * patch * channels)

    def forward(self, x, t, labels):
        batch, _, height, width = x.shape
        angles = 1000 * t[:, None] * self.frequencies
        condition = self.time(torch.cat((angles.cos(), angles.sin()), dim=-1))
        condition = F.silu(condition + self.label(labels))
        x = self.embed(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x, condition)
        x = self.out(self.norm(x))
        p = self.patch
        x = x.view(batch, height // p, width // p, p, p, self.channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, self.channels, height, width)


class Average:
    """Exponential moving average of the weights, from which we sample and save."""

    def __init__(self, model, decay, device):
        self.decay = decay
        self.model = copy.deepcopy(model).to(device).requires_grad_(False).eval()
        self.shadow = list(self.model.parameters())

    @torch.no_grad()
    def update(self, model):
        for average, weight in zip(self.shadow, model.parameters()):
            average.lerp_(weight.detach().to(average.device), 1 - self.decay)


class ForeachAverage(Average):
    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.shadow, list(model.parameters()), 1 - self.decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = DiT(args.size, 4, 2, args.width, args.depth, args.width // 64, args.classes)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.0, fused=device.type == "cuda"
    )
    if args.fixed:
        average = ForeachAverage(model, 0.9999, device)
    else:
        average = Average(model, 0.9999, "cpu")

    # latents of the training images, encoded beforehand
    latents = torch.randn(16 * args.batch_size, 4, args.size, args.size, device=device)
    classes = torch.randint(0, args.classes, (len(latents),), device=device)

    for step in range(args.steps):
        chosen = torch.randint(0, len(latents), (args.batch_size,), device=device)
        clean, labels = latents[chosen], classes[chosen]
        dropped = torch.rand(args.batch_size, device=device) < 0.1
        labels = torch.where(dropped, args.classes, labels)
        t = torch.sigmoid(torch.randn(args.batch_size, device=device))
        noise = torch.randn_like(clean)
        noisy = torch.lerp(clean, noise, t.view(-1, 1, 1, 1))

        with torch.autocast(device.type, dtype=torch.bfloat16):
            velocity = model(noisy, t, labels)
        loss = F.mse_loss(velocity.float(), noise - clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        average.update(model)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
