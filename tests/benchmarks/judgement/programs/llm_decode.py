"""Decode with a small language model and a static key-value cache, one token at a time."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.length = length
        self.cache = None

    def forward(self, x, position, mask):
        batch = len(x)
        q, k, v = self.qkv(x).view(batch, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.cache is None:
            shape = (2, batch, self.heads, self.length, q.shape[-1])
            self.cache = torch.zeros(shape, device=x.device, dtype=x.dtype)
        self.cache[0].index_copy_(2, position, k)
        self.cache[1].index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, self.cache[0], self.cache[1], attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, 1, -1))


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.attention = Attention(width, heads, length)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate = nn.Linear(width, 4 * width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, position, mask):
        x = x + self.attention(self.norm1(x), position, mask)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=32_000, width=768, heads=12, layers=12, length=1024):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, token, position):
        x = self.embedding(token)
        mask = self.mask[position][None, None]
        for block in self.blocks:
            x = block(x, position, mask)
        return self.head(self.norm(x))


def sample(logits, noise):
    probs = torch.softmax(logits[:, -1].float() / 0.8, dim=-1)
    return torch.argmax(probs / noise.exponential_(1), dim=-1, keepdim=True)


def decode_one_token(model, token, position, noise):
    following = sample(model(token, position), noise)
    token.copy_(following)
    position.add_(1)
    return following


def graphed(model, token, position, noise):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decode_one_token(model, token, position, noise)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        following = decode_one_token(model, token, position, noise)

    def replay(*_):
        graph.replay()
        return following

    return replay


@torch.inference_mode()
def generate(decode, model, token, position, noise, count):
    position.fill_(16)
    tokens = []
    for _ in range(count):
        tokens.append(next_token(decode, model, token, position, noise))
    return torch.cat(tokens, dim=1)


def next_token(decode, model, token, position, noise):
    return decode(model, token, position, noise).clone()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = LanguageModel().to(device, dtype).eval()
    token = torch.randint(0, 32_000, (args.batch_size, 1), device=device)
    position = torch.zeros(1, dtype=torch.int64, device=device)
    noise = torch.empty(args.batch_size, 32_000, device=device)
    decode = decode_one_token
    if args.fixed:
        with torch.inference_mode():
            decode = graphed(model, token, position, noise)
    for number in range(args.sequences):
        tokens = generate(decode, model, token, position, noise, args.tokens)
        print(f"sequence {number}: {tokens[0, :8].tolist()}")


if __name__ == "__main__":
    main()
