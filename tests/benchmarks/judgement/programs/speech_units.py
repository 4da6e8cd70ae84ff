"""Pretrain a speech encoder to predict the units of masked frames (HuBERT on log-mels)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class EncoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class SpeechEncoder(nn.Module):
    def __init__(self, mels, stack, frames, width, heads, layers, units):
        super().__init__()
        self.stack = stack
        self.into = nn.Linear(stack * mels, width)
        self.position = nn.Parameter(0.02 * torch.randn(frames, width))
        self.mask = nn.Parameter(0.02 * torch.randn(width))
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, units)

    def forward(self, mels, masked):
        batch, frames, bins = mels.shape
        x = self.into(mels.view(batch, frames // self.stack, self.stack * bins))
        index = masked.unsqueeze(-1).expand(-1, -1, x.shape[-1])
        x = x.scatter(1, index, self.mask.to(x.dtype).expand(index.shape)) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).gather(1, index))


def choose_masked(batch, frames, share, device):
    """The same number of frames is hidden in every utterance."""
    return torch.rand(batch, frames, device=device).argsort(dim=1)[:, : int(share * frames)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--frames", type=int, default=1536, help="of 10 ms")
    parser.add_argument("--mels", type=int, default=80)
    parser.add_argument("--stack", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--units", type=int, default=500)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    frames = args.frames // args.stack
    model = SpeechEncoder(
        args.mels, args.stack, frames, args.width, args.heads, args.layers, args.units
    ).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, weight_decay=0.01, fused=device.type == "cuda"
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=200)
    batches = [
        (
            torch.randn(args.batch_size, args.frames, args.mels, device=device),
            torch.randint(0, args.units, (args.batch_size, frames), device=device),
        )
        for _ in range(8)
    ]

    for step in range(args.steps):
        mels, units = batches[step % len(batches)]
        masked = choose_masked(args.batch_size, frames, 0.4, device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(mels, masked)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), units.gather(1, masked).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
