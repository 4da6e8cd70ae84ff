"""Train a vocoder (a small HiFi-GAN) against discriminators of periods and scales."""

import argparse
import itertools

import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, channels, kernel, dilations=(1, 3, 5)):
        super().__init__()
        self.first = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2)
            for d in dilations
        )
        self.second = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, padding=(kernel - 1) // 2) for _ in dilations
        )

    def forward(self, x):
        for first, second in zip(self.first, self.second, strict=False):
            x = x + second(F.leaky_relu(first(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Generator(nn.Module):
    def __init__(self, mels, channels, rates=(8, 8, 2, 2), kernels=(3, 7, 11)):
        super().__init__()
        self.pre = nn.Conv1d(mels, channels, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate in rates:
            self.ups.append(
                nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, padding=rate // 2)
            )
            channels //= 2
            self.blocks.append(nn.ModuleList(ResBlock(channels, k) for k in kernels))
        self.post = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, mel):
        x = self.pre(mel)
        for up, blocks in zip(self.ups, self.blocks, strict=False):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.post(F.leaky_relu(x)))


class PeriodDiscriminator(nn.Module):
    def __init__(self, period, width):
        super().__init__()
        self.period = period
        sizes = (1, width, 2 * width, 4 * width)
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0)) for a, b in itertools.pairwise(sizes)
        )
        self.post = nn.Conv2d(sizes[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, x):
        x = F.pad(x, (0, -x.shape[-1] % self.period), "reflect")
        x = x.view(len(x), 1, -1, self.period)
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
        return self.post(x).flatten(1)


class ScaleDiscriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = (1, width, 2 * width, 4 * width)
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, 15, 4, padding=7) for a, b in itertools.pairwise(sizes)
        )
        self.post = nn.Conv1d(sizes[-1], 1, 3, padding=1)

    def forward(self, x):
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
        return self.post(x).flatten(1)


class Discriminator(nn.Module):
    def __init__(self, width, periods=(2, 3, 5)):
        super().__init__()
        self.parts = nn.ModuleList(PeriodDiscriminator(p, width) for p in periods)
        self.parts.append(ScaleDiscriminator(width))

    def forward(self, x):
        return torch.cat([part(x) for part in self.parts], dim=1)


class LogSpectrogram(nn.Module):
    """A spectrogram in bands, for the inputs and for the reconstruction loss."""

    def __init__(self, mels, fft=1024, hop=256):
        super().__init__()
        self.fft, self.hop = fft, hop
        self.register_buffer("window", torch.hann_window(fft))
        centers = torch.linspace(0, 1, mels + 2)[1:-1].unsqueeze(1) ** 2
        bins = torch.linspace(0, 1, fft // 2 + 1).unsqueeze(0)
        bands = F.relu(1 - (bins - centers).abs() * mels / 2)
        self.register_buffer("bands", bands / (bands.sum(dim=1, keepdim=True) + 1e-3))

    def forward(self, wave):
        side = (self.fft - self.hop) // 2
        wave = F.pad(wave, (side, side), "reflect").squeeze(1)
        spectrum = torch.stft(
            wave, self.fft, self.hop, window=self.window, center=False, return_complex=True
        )
        power = (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()
        return torch.log(torch.matmul(self.bands, power).clamp(min=1e-5))


def train_step(generator, discriminator, spectrogram, opt_g, opt_d, mel, wave, fixed):
    fake = generator(mel)

    opt_d.zero_grad()
    real_score = discriminator(wave)
    if fixed:
        fake_score = discriminator(fake.detach())
        loss_d = (1 - real_score).square().mean() + fake_score.square().mean()
        loss_d.backward()
    else:
        fake_score = discriminator(fake)
        loss_d = (1 - real_score).square().mean() + fake_score.square().mean()
        loss_d.backward(retain_graph=True)
    opt_d.step()

    opt_g.zero_grad()
    adversarial = (1 - discriminator(fake)).square().mean()
    reconstruction = F.l1_loss(spectrogram(fake), mel)
    loss_g = adversarial + 45 * reconstruction
    loss_g.backward()
    opt_g.step()
    return loss_g.detach(), loss_d.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--segment", type=int, default=8192)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    spectrogram = LogSpectrogram(80).to(device)
    generator = Generator(80, args.channels).to(device)
    discriminator = Discriminator(args.width).to(device)
    opt_g = torch.optim.AdamW(generator.parameters(), 2e-4, betas=(0.8, 0.99), fused=cuda)
    opt_d = torch.optim.AdamW(discriminator.parameters(), 2e-4, betas=(0.8, 0.99), fused=cuda)

    waves = 0.3 * torch.randn(16, args.batch_size, 1, args.segment, device=device)
    waves = F.avg_pool1d(waves.flatten(0, 1), 5, 1, 2).view_as(waves)
    mels = [spectrogram(wave) for wave in waves]

    for step in range(args.steps):
        wave, mel = waves[step % len(waves)], mels[step % len(waves)]
        loss_g, loss_d = train_step(
            generator, discriminator, spectrogram, opt_g, opt_d, mel, wave, args.fixed
        )
        if step % 50 == 0:
            print(f"step {step} generator {loss_g.item():.4f} discriminator {loss_d.item():.4f}")


if __name__ == "__main__":
    main()
