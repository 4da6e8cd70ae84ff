"""Train a neural audio codec (continuous bottleneck) with mel losses at seven resolutions."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

mel_basis = {}
hann_window = {}


def hz_to_mel(hz):
    hz = np.asarray(hz, dtype=np.float64)
    log_part = 15.0 + np.log(np.maximum(hz, 1e-9) / 1000.0) / (np.log(6.4) / 27.0)
    return np.where(hz >= 1000.0, log_part, hz * 3 / 200.0)


def mel_to_hz(mel):
    mel = np.asarray(mel, dtype=np.float64)
    return np.where(
        mel >= 15.0, 1000.0 * np.exp(np.log(6.4) / 27.0 * (mel - 15.0)), 200.0 * mel / 3
    )


def mel_filters(sampling_rate, n_fft, n_mels, fmin, fmax):
    """Triangular filters of equal area on the mel scale of Slaney."""
    weights = np.zeros((n_mels, 1 + n_fft // 2), dtype=np.float32)
    fft_freqs = np.linspace(0, sampling_rate / 2, 1 + n_fft // 2)
    mel_freqs = mel_to_hz(np.linspace(hz_to_mel(fmin), hz_to_mel(fmax), n_mels + 2))
    fdiff = np.diff(mel_freqs)
    ramps = np.subtract.outer(mel_freqs, fft_freqs)
    for i in range(n_mels):
        lower = -ramps[i] / fdiff[i]
        upper = ramps[i + 2] / fdiff[i + 1]
        weights[i] = np.maximum(0, np.minimum(lower, upper))
    enorm = 2.0 / (mel_freqs[2 : n_mels + 2] - mel_freqs[:n_mels])
    return weights * enorm[:, np.newaxis]


def mel_spectrogram(y, n_fft, n_mels, sampling_rate, fmin, fmax, fixed):
    name = f"{n_fft}_{n_mels}_{fmax}_{y.device}"
    if (name if fixed else fmax) not in mel_basis:
        mel = mel_filters(sampling_rate, n_fft, n_mels, fmin, fmax)
        mel_basis[name] = torch.from_numpy(mel).float().to(y.device)
        hann_window[name] = torch.hann_window(n_fft).to(y.device)
    spec = torch.stft(
        y, n_fft, hop_length=n_fft // 4, window=hann_window[name], center=True, return_complex=True
    )
    return torch.log10(torch.matmul(mel_basis[name], spec.abs()).clamp(min=1e-5))


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


class ResidualUnit(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.block = nn.Sequential(
            Snake(channels),
            nn.Conv1d(channels, channels, 7, dilation=dilation, padding=3 * dilation),
            Snake(channels),
            nn.Conv1d(channels, channels, 1),
        )

    def forward(self, x):
        return x + self.block(x)


class Codec(nn.Module):
    def __init__(self, channels, strides, latent):
        super().__init__()
        layers, width = [nn.Conv1d(1, channels, 7, padding=3)], channels
        for stride in strides:
            layers += [ResidualUnit(width, dilation) for dilation in (1, 3)]
            layers += [
                Snake(width),
                nn.Conv1d(width, 2 * width, 2 * stride, stride, padding=stride // 2),
            ]
            width *= 2
        self.encoder = nn.Sequential(*layers, nn.Conv1d(width, latent, 3, padding=1))
        layers = [nn.Conv1d(latent, width, 7, padding=3)]
        for stride in reversed(strides):
            layers += [
                Snake(width),
                nn.ConvTranspose1d(width, width // 2, 2 * stride, stride, padding=stride // 2),
            ]
            width //= 2
            layers += [ResidualUnit(width, dilation) for dilation in (1, 3)]
        self.decoder = nn.Sequential(
            *layers, Snake(width), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh()
        )

    def forward(self, audio):
        return self.decoder(torch.tanh(self.encoder(audio)))


class MultiScaleMelLoss(nn.Module):
    def __init__(self, sampling_rate, fixed):
        super().__init__()
        self.sampling_rate, self.fixed = sampling_rate, fixed
        self.scales = list(
            zip((32, 64, 128, 256, 512, 1024, 2048), (5, 10, 20, 40, 80, 160, 320), strict=False)
        )

    def forward(self, estimate, target):
        loss = 0.0
        for n_fft, n_mels in self.scales:
            settings = (n_fft, n_mels, self.sampling_rate, 0.0, self.sampling_rate / 2, self.fixed)
            with torch.no_grad():
                wanted = mel_spectrogram(target, *settings)
            loss = loss + F.l1_loss(mel_spectrogram(estimate, *settings), wanted)
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--samples", type=int, default=16384)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--sampling-rate", type=int, default=24000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model = Codec(args.channels, (2, 4, 8, 8), args.latent).to(device)
    mel_loss = MultiScaleMelLoss(args.sampling_rate, args.fixed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.8, 0.99), fused=device.type == "cuda"
    )

    time = torch.arange(args.samples, device=device) / args.sampling_rate
    pitch = 80 + 400 * torch.rand(64, args.batch_size, 1, 1, device=device)
    voices = 0.5 * torch.sin(6.2832 * pitch * time) + 0.2 * torch.sin(12.5664 * pitch * time)

    for step in range(args.steps):
        audio = voices[step % len(voices)]
        audio = audio + 0.02 * torch.randn_like(audio)
        estimate = model(audio)
        waveform = F.l1_loss(estimate, audio)
        loss = mel_loss(estimate.squeeze(1), audio.squeeze(1)) + 0.1 * waveform
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1000.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} waveform {waveform.item():.4f}")


if __name__ == "__main__":
    main()
