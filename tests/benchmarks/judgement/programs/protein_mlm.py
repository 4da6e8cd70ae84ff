"""Pretrain a language model of proteins by filling in masked residues."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

RESIDUES, MASK = 25, 25


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = (
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        )
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def rotate(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


class ProteinModel(nn.Module):
    def __init__(self, width, layers, heads, length):
        super().__init__()
        self.residues = nn.Embedding(RESIDUES + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, RESIDUES)
        half = width // heads // 2
        angles = torch.arange(length).unsqueeze(1) * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, places, labels):
        x = self.residues(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        masked = x.gather(1, places.unsqueeze(2).expand(-1, -1, x.size(2)))
        logits = self.head(self.norm(masked))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def mask_residues(tokens, share=0.15):
    """Chooses the same number of residues in each protein: 80 % masked, 10 % swapped, 10 % kept."""
    places = (
        torch.rand(tokens.shape, device=tokens.device)
        .topk(int(share * tokens.size(1)), dim=1)
        .indices
    )
    labels = tokens.gather(1, places)
    dice = torch.rand(places.shape, device=tokens.device)
    shown = torch.where(
        dice < 0.8, MASK, torch.where(dice < 0.9, torch.randint_like(labels, RESIDUES), labels)
    )
    return tokens.scatter(1, places, shown), places, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=4e-4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model = ProteinModel(args.width, args.layers, args.heads, args.length).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=args.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=0.01,
        fused=device.type == "cuda",
    )
    warmup = 100
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * min(s / args.steps, 1.0))),
    )
    proteins = torch.randint(0, RESIDUES, (32, args.batch_size, args.length))
    if device.type == "cuda":
        proteins = proteins.pin_memory()

    for step in range(args.steps):
        tokens = proteins[step % len(proteins)].to(device, non_blocking=True)
        shown, places, labels = mask_residues(tokens)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = compiled(shown, places, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
