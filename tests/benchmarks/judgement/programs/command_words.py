"""Recognize spoken command words from the raw waveform, with convolutions as long as it."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def smooth_length(least):
    """The least even number without prime factors above five that is not below `least`."""
    size = least + least % 2
    while True:
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 2


def fft_convolve(signal, kernel, size):
    """Causal convolution of the last dimension; no entry of `signal` wraps around."""
    spectrum = torch.fft.rfft(signal, n=size) * torch.fft.rfft(kernel, n=size)
    return torch.fft.irfft(spectrum, n=size)[..., : signal.shape[-1]]


class LongConv(nn.Module):
    """A filter per channel as long as the signal, its small entries squashed to zero."""

    def __init__(self, width, length, squash=0.003, smooth=False):
        super().__init__()
        decay = torch.exp(-torch.linspace(0, 8, length) * torch.rand(width, 1).add(0.2))
        self.kernel = nn.Parameter(0.02 * torch.randn(width, length) * decay)
        self.skip = nn.Parameter(torch.randn(width, 1))
        self.squash = squash
        self.size = 2 * length - 1
        if smooth:
            self.size = smooth_length(self.size)

    def forward(self, x):
        kernel = F.softshrink(self.kernel, self.squash)
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            return fft_convolve(x, kernel, self.size) + x * self.skip


class Block(nn.Module):
    def __init__(self, width, length, smooth):
        super().__init__()
        self.norm = nn.GroupNorm(1, width)
        self.conv = LongConv(width, length, smooth=smooth)
        self.mix = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x):
        return x + F.glu(self.mix(F.gelu(self.conv(self.norm(x)))), dim=1)


class WordNet(nn.Module):
    def __init__(self, width, layers, length, words, smooth):
        super().__init__()
        self.encoder = nn.Conv1d(1, width, 1)
        self.blocks = nn.Sequential(*(Block(width, length, smooth) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, wave):
        return self.head(self.blocks(self.encoder(wave.unsqueeze(1))).mean(dim=-1))


def parameter_groups(model, lr):
    """Filters learn slower than the rest, and without weight decay."""
    filters = [p for n, p in model.named_parameters() if n.endswith("kernel")]
    others = [p for n, p in model.named_parameters() if not n.endswith("kernel")]
    return [
        {"params": filters, "lr": 0.1 * lr, "weight_decay": 0.0},
        {"params": others, "lr": lr, "weight_decay": 0.05},
    ]


def record(count, length, words, device):
    """Int16 waveforms, as they come from the microphone, in pinned memory."""
    waves = torch.randint(-8000, 8000, (count, length), dtype=torch.int16)
    labels = torch.randint(0, words, (count,))
    if device.type == "cuda":
        waves, labels = waves.pin_memory(), labels.pin_memory()
    return waves, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=16000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--words", type=int, default=35)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = WordNet(args.width, args.layers, args.length, args.words, args.fixed).to(device)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, args.lr), lr=args.lr, fused=device.type == "cuda"
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    waves, labels = record(64 * args.batch_size, args.length, args.words, device)

    for step in range(args.steps):
        start = step % 64 * args.batch_size
        batch = slice(start, start + args.batch_size)
        wave = waves[batch].to(device, non_blocking=True).float() / 32768
        label = labels[batch].to(device, non_blocking=True)
        wave = wave * (0.7 + 0.6 * torch.rand(len(wave), 1, device=device))
        wave = wave + 0.01 * torch.randn_like(wave)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(wave)
        loss = F.cross_entropy(logits.float(), label, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
