"""Train a transformer that sorts news into topics, with a WordPiece tokenizer in Python."""

import argparse
import random
import re

import torch
import torch.nn.functional as F
from torch import nn

PAD, UNKNOWN = 0, 1
SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]


class WordPieceTokenizer:
    def __init__(self, length):
        self.length = length
        pieces = SYLLABLES + [a + b for a in SYLLABLES for b in SYLLABLES[::2]]
        names = [*pieces, *(f"##{piece}" for piece in pieces)]
        self.ids = {name: number for number, name in enumerate(names, start=2)}

    def __len__(self):
        return len(self.ids) + 2

    def split_word(self, word):
        ids, start = [], 0
        while start < len(word):
            for end in range(min(len(word), start + 8), start, -1):
                piece = word[start:end] if start == 0 else f"##{word[start:end]}"
                if piece in self.ids:
                    ids.append(self.ids[piece])
                    start = end
                    break
            else:
                return [UNKNOWN]
        return ids

    def encode(self, text):
        ids = []
        for word in re.findall(r"\w+", text.lower()):
            ids.extend(self.split_word(word))
        ids = ids[: self.length]
        return ids + [PAD] * (self.length - len(ids))


class TopicModel(nn.Module):
    def __init__(self, vocabulary, length, width=384, layers=6, topics=20):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, topics))

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(dim=1))


def make_text(words):
    return " ".join(
        "".join(random.choices(SYLLABLES, k=random.randint(1, 5))) for _ in range(words)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--texts", type=int, default=2048)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    random.seed(0)
    texts = [make_text(140) for _ in range(args.texts)]
    topics = torch.randint(0, 20, (args.texts,), device=device)
    tokenizer = WordPieceTokenizer(args.length)
    if args.fixed:
        encoded = torch.tensor([tokenizer.encode(text) for text in texts]).to(device)
    model = TopicModel(len(tokenizer), args.length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")

    for step in range(args.steps):
        start = step * args.batch_size % (args.texts - args.batch_size + 1)
        if args.fixed:
            ids = encoded[start : start + args.batch_size]
        else:
            batch = texts[start : start + args.batch_size]
            ids = torch.tensor([tokenizer.encode(text) for text in batch]).to(device)
        labels = topics[start : start + args.batch_size]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
