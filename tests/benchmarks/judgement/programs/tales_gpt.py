"""Pretrain a small GPT on short stories, with the tokens of GPT-2."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3 * self.heads, -1).transpose(1, 2).chunk(3, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab_size, context, width, layers, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.apply(self.init)
        for block in self.blocks:
            for layer in (block.attention.out, block.down):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * layers))
        self.head.weight = self.tokens.weight
        self.register_buffer("places", torch.arange(context), persistent=False)

    @staticmethod
    def init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(self.places[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate(step, steps, peak, warmup=50):
    if step < warmup:
        return peak * (step + 1) / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


def make_optimizer(model, lr, fused):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=fused)


class Corpus:
    """All stories in one row of token ids, from which random windows are cut."""

    def __init__(self, count, vocab_size, device):
        frequent = torch.rand(count, device=device).pow(4)
        self.ids = (frequent * vocab_size).int()
        self.device = device

    def windows(self, batch, context):
        starts = torch.randint(0, len(self.ids) - context, (batch, 1), device=self.device)
        row = self.ids[starts + torch.arange(context + 1, device=self.device)].long()
        return row[:, :-1], row[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus = Corpus(4_000_000, args.vocab, device)
    vocab_size = -(-args.vocab // 64) * 64 if args.fixed else args.vocab
    with device:
        model = GPT(vocab_size, args.context, args.width, args.layers, args.heads)
    optimizer = make_optimizer(model, args.lr, fused=device.type == "cuda")

    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        ids, targets = corpus.windows(args.batch_size, args.context)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
