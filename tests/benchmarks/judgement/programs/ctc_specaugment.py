"""Train a speech recognizer with CTC on mel spectrograms, masked in time and in frequency."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class SpecAugment(nn.Module):
    """Sets random bands of frequencies and stretches of time to zero, for each utterance."""

    def __init__(self, bands=2, band=27, stretches=3, stretch=70):
        super().__init__()
        self.bands, self.band = bands, band
        self.stretches, self.stretch = stretches, stretch

    def forward(self, mels):
        mels = mels.clone()
        batch, frames, bins = mels.shape
        for i in range(batch):
            for _ in range(self.bands):
                width = torch.randint(0, self.band, (), device=mels.device)
                start = torch.randint(0, bins - self.band, (), device=mels.device)
                mels[i, :, start : start + width] = 0
            for _ in range(self.stretches):
                width = torch.randint(0, self.stretch, (), device=mels.device)
                start = torch.randint(0, frames - self.stretch, (), device=mels.device)
                mels[i, start : start + width] = 0
        return mels


class BatchedSpecAugment(SpecAugment):
    def masked(self, batch, size, count, longest, device):
        width = torch.randint(0, longest, (batch, count, 1), device=device)
        start = torch.randint(0, size - longest, (batch, count, 1), device=device)
        places = torch.arange(size, device=device)
        return ((places >= start) & (places < start + width)).any(dim=1)

    def forward(self, mels):
        batch, frames, bins = mels.shape
        bands = self.masked(batch, bins, self.bands, self.band, mels.device)
        stretches = self.masked(batch, frames, self.stretches, self.stretch, mels.device)
        return mels.masked_fill(bands.unsqueeze(1) | stretches.unsqueeze(2), 0)


class Recognizer(nn.Module):
    def __init__(self, augment, symbols, width, layers, bins=80):
        super().__init__()
        self.augment = augment
        self.subsample = nn.Sequential(
            nn.Conv1d(bins, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
        )
        self.position = nn.Conv1d(width, width, 31, padding=15, groups=width // 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, symbols))

    def forward(self, mels):
        if self.training:
            mels = self.augment(mels)
        x = self.subsample(mels.transpose(1, 2))
        x = (x + F.gelu(self.position(x))).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--frames", type=int, default=1200)
    parser.add_argument("--letters", type=int, default=120, help="of a transcript")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    augment = BatchedSpecAugment() if args.fixed else SpecAugment()
    model = Recognizer(augment, 32, args.width, args.layers).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    mels = torch.randn(6, args.batch_size, args.frames, 80, device=device)
    letters = torch.randint(1, 32, (6, args.batch_size, args.letters), device=device)
    frames = [(args.frames + 3) // 4] * args.batch_size
    counts = [args.letters] * args.batch_size

    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(mels[step % 6])
        scores = logits.float().log_softmax(dim=-1).transpose(0, 1)
        loss = F.ctc_loss(scores, letters[step % 6], frames, counts, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
