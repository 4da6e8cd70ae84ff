"""Write loops of antibodies with a protein language model: twelve residues after each context."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, memory=None, start=0):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if memory is not None:
            memory[0, :, :, start : start + length] = k
            memory[1, :, :, start : start + length] = v
            k, v = memory[:, :, :, : start + length]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class ProteinModel(nn.Module):
    def __init__(self, layers=8, width=1024, heads=16, context=1024):
        super().__init__()
        self.tokens = nn.Embedding(len(RESIDUES) + 4, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(RESIDUES), bias=False)

    def forward(self, tokens, memories=None, start=0):
        x = self.tokens(tokens) + self.places.weight[start : start + tokens.shape[1]]
        for number, block in enumerate(self.blocks):
            x = block(x, None if memories is None else memories[number], start)
        return self.head(self.norm(x[:, -1]))


def pick(logits, temperature=0.8):
    probabilities = (logits.float() / temperature).softmax(dim=-1)
    return (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1, True)


def generate(model, tokens, count):
    for _ in range(count):
        logits = model(tokens)
        tokens = torch.cat((tokens, pick(logits)), dim=1)
    return tokens[:, -count:]


def generate_with_memory(model, tokens, count):
    batch, length = tokens.shape
    block = model.blocks[0]
    width = model.tokens.embedding_dim
    shape = (2, batch, block.heads, length + count, width // block.heads)
    memories = [model.head.weight.new_empty(shape) for _ in model.blocks]
    written = [pick(model(tokens, memories))]
    for place in range(length, length + count - 1):
        written.append(pick(model(written[-1], memories, place)))
    return torch.cat(written, dim=1)


def design(model, contexts, count, fixed):
    return (generate_with_memory if fixed else generate)(model, contexts, count)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--residues", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = ProteinModel().to(device, dtype).eval()
    # an antigen, a separator, and the framework around the loop
    contexts = torch.randint(0, len(RESIDUES), (8, args.batch_size, args.length), device=device)
    for number in range(args.batches):
        loops = design(model, contexts[number % 8], args.residues, args.fixed)
        if number % 50 == 0:
            print(f"batch {number}: {''.join(RESIDUES[i] for i in loops[0].tolist())}")


if __name__ == "__main__":
    main()
