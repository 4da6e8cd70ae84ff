"""Train a variational autoencoder of music waveforms with Snake activations."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).square()


class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.layers = nn.Sequential(
            Snake(channels),
            nn.Conv1d(channels, channels, 7, dilation=dilation, padding=3 * dilation),
            Snake(channels),
            nn.Conv1d(channels, channels, 1),
        )

    def forward(self, x):
        return x + self.layers(x)


class Codec(nn.Module):
    def __init__(self, width, latent, strides=(4, 4, 8), warmup=5000):
        super().__init__()
        encoder, decoder = [nn.Conv1d(1, width, 7, padding=3)], []
        channels = width
        for stride in strides:
            encoder += [
                Residual(channels, 3),
                Snake(channels),
                nn.Conv1d(channels, 2 * channels, 2 * stride, stride, stride // 2),
            ]
            decoder = [
                Snake(2 * channels),
                nn.ConvTranspose1d(2 * channels, channels, 2 * stride, stride, stride // 2),
                Residual(channels, 3),
                *decoder,
            ]
            channels *= 2
        self.encoder = nn.Sequential(*encoder, nn.Conv1d(channels, 2 * latent, 3, padding=1))
        self.decoder = nn.Sequential(
            nn.Conv1d(latent, channels, 3, padding=1),
            *decoder,
            Snake(width),
            nn.Conv1d(width, 1, 7, padding=3),
        )
        self.warmup = warmup
        self.updates = 0

    def kl_weight(self):
        return 1e-2 * min(1.0, self.updates / self.warmup)

    def forward(self, wave):
        if self.training:
            self.updates += 1
        mean, log_scale = self.encoder(wave).float().chunk(2, dim=1)
        log_scale = log_scale.clamp(-8, 4)
        z = mean + torch.randn_like(mean) * log_scale.exp()
        rebuilt = torch.tanh(self.decoder(z).float())
        distance = F.l1_loss(rebuilt, wave) + F.mse_loss(rebuilt, wave)
        kl = (0.5 * (mean.square() + (2 * log_scale).exp() - 1) - log_scale).mean()
        return distance + self.kl_weight() * kl, distance.detach()


class BufferedCodec(Codec):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        del self.updates
        self.register_buffer("updates", torch.zeros(()))

    def kl_weight(self):
        return 1e-2 * (self.updates / self.warmup).clamp(max=1.0)


def make_wave(size, samples, device):
    times = torch.arange(samples, device=device) / 44100
    pitch = 80 * 2 ** (4 * torch.rand(size, 5, 1, device=device))
    tones = torch.sin(6.2832 * pitch * times).mean(dim=1, keepdim=True)
    return 0.8 * tones + 0.02 * torch.randn(size, 1, samples, device=device)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--samples", type=int, default=65536)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    kind = BufferedCodec if args.fixed else Codec
    codec = kind(args.width, args.latent).to(device)
    model = torch.compile(codec)
    optimizer = torch.optim.AdamW(
        codec.parameters(), lr=2e-4, betas=(0.8, 0.99), fused=device.type == "cuda"
    )
    waves = [make_wave(args.batch_size, args.samples, device) for _ in range(8)]

    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss, distance = model(waves[step % len(waves)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} distance {distance.item():.4f}")


if __name__ == "__main__":
    main()
