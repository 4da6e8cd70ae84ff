"""Train a speech recognizer with CTC: log-mel features of waveforms, a convolution, a conformer."""

import argparse

import torch
import torch.nn.functional as F
import torchaudio
from torch import nn

TOKENS = 64


class Recognizer(nn.Module):
    def __init__(self, mels=80, width=256, layers=8):
        super().__init__()
        self.subsample = nn.Sequential(
            nn.Conv1d(mels, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
        )
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, TOKENS)

    def forward(self, features):
        x = self.subsample(features).transpose(1, 2)
        return self.head(self.encoder(x)).log_softmax(-1)


def train_step(model, mel, waveforms, tokens, optimizer, device):
    features = torch.log(mel(waveforms) + 1e-6)
    features = (features - features.mean()) / features.std()
    features = features.to(device, non_blocking=True)
    tokens = tokens.to(device, non_blocking=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        log_probs = model(features)
    log_probs = log_probs.float().transpose(0, 1)
    frames = torch.full((len(tokens),), len(log_probs), dtype=torch.int32)
    lengths = torch.full((len(tokens),), tokens.shape[1], dtype=torch.int32)
    loss = F.ctc_loss(log_probs, tokens, frames, lengths, zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Recognizer().to(device)
    mel = torchaudio.transforms.MelSpectrogram(16_000, n_fft=400, hop_length=160, n_mels=80)
    if args.fixed:
        mel = mel.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    samples = int(16_000 * args.seconds)
    data = [
        (torch.randn(args.batch_size, samples), torch.randint(1, TOKENS, (args.batch_size, 40)))
        for _ in range(8)
    ]
    if device.type == "cuda":
        data = [(waveforms.pin_memory(), tokens.pin_memory()) for waveforms, tokens in data]

    for step in range(args.steps):
        waveforms, tokens = data[step % len(data)]
        if args.fixed:
            waveforms = waveforms.to(device, non_blocking=True)
        loss = train_step(model, mel, waveforms, tokens, optimizer, device)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
