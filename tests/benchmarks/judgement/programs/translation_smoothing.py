"""Train a translator, an encoder and a decoder, with smoothed labels."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

PAD = 0


class LabelSmoothing(nn.Module):
    def __init__(self, vocabulary, smoothing=0.1):
        super().__init__()
        self.vocabulary, self.smoothing = vocabulary, smoothing

    def forward(self, logits, target):
        log_probs = logits.float().log_softmax(dim=-1)
        wanted = F.one_hot(target, self.vocabulary).float()
        wanted = wanted * (1 - self.smoothing) + self.smoothing / self.vocabulary
        loss = -(wanted * log_probs).sum(dim=-1)
        real = target != PAD
        return (loss * real).sum() / real.sum()


class Translator(nn.Module):
    def __init__(self, vocabulary, width, layers, max_length=256):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.places = nn.Embedding(max_length, width)
        self.transformer = nn.Transformer(
            width, 8, layers, layers, 4 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def embed(self, ids):
        return self.words(ids) + self.places.weight[: ids.shape[1]]

    def forward(self, source, target, causal):
        x = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True
        )
        return self.head(x)


def sentences(count, batch_size, length, vocabulary, device):
    ids = torch.randint(1, vocabulary, (count, batch_size, length), device=device)
    # sentences of similar length are in one batch: only the last few words are padding
    lengths = torch.randint(length - 4, length + 1, (count, batch_size, 1), device=device)
    return ids.masked_fill(torch.arange(length, device=device) >= lengths, PAD)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=37_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Translator(args.vocabulary, 512, args.layers).to(device)
    if args.fixed:
        criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    else:
        criterion = LabelSmoothing(args.vocabulary)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=5e-4, betas=(0.9, 0.98), fused=device.type == "cuda"
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=1000)
    shape = (8, args.batch_size, args.length)
    sources = sentences(*shape, args.vocabulary, device)
    targets = sentences(*shape[:2], args.length + 1, args.vocabulary, device)
    causal = nn.Transformer.generate_square_subsequent_mask(args.length, device=device)

    for step in range(args.steps):
        source, target = sources[step % 8], targets[step % 8]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(source, target[:, :-1], causal)
        loss = criterion(logits.flatten(0, 1).float(), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
