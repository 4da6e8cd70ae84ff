"""Train a scene text recognizer (a ViT that reads characters) and follow its error rate."""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
END = len(ALPHABET)
MAX_LENGTH = 25


class TextReader(nn.Module):
    def __init__(self, width=384, layers=6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, (4, 8), stride=(4, 8))
        self.places = nn.Parameter(torch.randn(1, 8 * 16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 6, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(ALPHABET) + 1)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.encoder(x)[:, :MAX_LENGTH])


def encode(words):
    rows = [[ALPHABET.index(c) for c in word] for word in words]
    return torch.tensor([row + [END] * (MAX_LENGTH - len(row)) for row in rows])


def decode(indices):
    length = indices.index(END) if END in indices else len(indices)
    return "".join(ALPHABET[i] for i in indices[:length])


def edit_distance(a, b):
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return previous[-1]


def error_rate(logits, words):
    guesses = [decode(indices) for indices in logits.argmax(dim=-1).tolist()]
    errors = sum(edit_distance(guess, word) for guess, word in zip(guesses, words, strict=True))
    return errors / sum(len(word) for word in words)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=192)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    random.seed(0)
    model = TextReader().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    batches = []
    for _ in range(8):
        words = [
            "".join(random.choices(ALPHABET, k=random.randint(12, MAX_LENGTH)))
            for _ in range(args.batch_size)
        ]
        images = torch.randn(args.batch_size, 3, 32, 128, device=device)
        batches.append((images, words, encode(words).to(device)))

    average = 1.0
    for step in range(args.steps):
        images, words, targets = batches[step % 8]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not args.fixed or step % 100 == 0:
            average = 0.9 * average + 0.1 * error_rate(logits, words)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} character error rate {average:.3f}")


if __name__ == "__main__":
    main()
