"""Train a diffusion transformer on cached latents of images."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x, condition):
        m = self.modulation(F.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
        y = self.norm1(x) * (1 + m[0]) + m[1]
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + m[2] * self.out(y)
        return x + m[5] * self.mlp(self.norm2(x) * (1 + m[3]) + m[4])


class DiT(nn.Module):
    def __init__(self, channels, size, patch, width, layers, classes):
        super().__init__()
        self.patch, self.grid = patch, size // patch
        self.embed = nn.Linear(channels * patch * patch, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, self.grid**2, width))
        self.label = nn.Embedding(classes, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.register_buffer("frequencies", torch.exp(-9.2 * torch.arange(128) / 128))
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, channels * patch * patch)

    def forward(self, x, t, labels):
        batch, channels = x.shape[:2]
        p, g = self.patch, self.grid
        x = x.view(batch, channels, g, p, g, p).permute(0, 2, 4, 1, 3, 5).reshape(batch, g * g, -1)
        angles = 1000 * t.unsqueeze(1) * self.frequencies
        condition = self.time(torch.cat((angles.cos(), angles.sin()), dim=1)) + self.label(labels)
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x, condition)
        x = self.out(self.norm(x)).view(batch, g, g, channels, p, p)
        return x.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels, g * p, g * p)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = DiT(4, args.size, 2, args.width, args.layers, 1000).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    weights, averages = list(model.parameters()), list(average.parameters())
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=device.type == "cuda")

    latents = torch.randn(32 * args.batch_size, 4, args.size, args.size, device=device)
    classes = torch.randint(0, 1000, (len(latents),), device=device)

    for step in range(args.steps):
        start = step % 32 * args.batch_size
        clean = latents[start : start + args.batch_size]
        labels = classes[start : start + args.batch_size]
        noise = torch.randn_like(clean)
        t = torch.sigmoid(torch.randn(args.batch_size, device=device))
        mix = t.view(-1, 1, 1, 1)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            velocity = compiled((1 - mix) * clean + mix * noise, t, labels)
        loss = F.mse_loss(velocity.float(), noise - clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(averages, weights, 1e-3)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
