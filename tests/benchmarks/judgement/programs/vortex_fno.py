"""Train a Fourier neural operator to step a two-dimensional vorticity field forward in time."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class SpectralConv(nn.Module):
    """Mixes the channels of the lowest modes of a periodic field."""

    def __init__(self, width, modes, fixed):
        super().__init__()
        self.modes, self.fixed = modes, fixed
        shape = (2, width, width, modes, modes)
        self.weight = nn.Parameter(torch.randn(*shape, dtype=torch.cfloat) / width**1.5)
        self.register_buffer("fold", torch.full((modes,), 0.5))
        self.fold[0] = 1.0

    def mix(self, spectrum, weight):
        return torch.einsum("bixy,ioxy->boxy", spectrum, weight)

    def place(self, spectrum, low, high):
        m = self.modes
        product = torch.zeros_like(spectrum)
        product[:, :, :m, :m] = low
        product[:, :, -m:, :m] = high
        return product

    def forward(self, x):
        if self.fixed:
            return self.forward_half(x)
        m = self.modes
        spectrum = torch.fft.fft2(x)
        low = self.mix(spectrum[:, :, :m, :m], self.weight[0])
        high = self.mix(spectrum[:, :, -m:, :m], self.weight[1])
        product = self.place(spectrum, low, high)
        return torch.fft.ifft2(product).real

    def forward_half(self, x):
        m = self.modes
        spectrum = torch.fft.rfft2(x)
        low = self.mix(spectrum[:, :, :m, :m], self.weight[0]) * self.fold
        high = self.mix(spectrum[:, :, -m:, :m], self.weight[1]) * self.fold
        product = self.place(spectrum, low, high)
        return torch.fft.irfft2(product, s=x.shape[-2:])


class Block(nn.Module):
    def __init__(self, width, modes, fixed):
        super().__init__()
        self.spectral = SpectralConv(width, modes, fixed)
        self.bypass = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return F.gelu(self.spectral(x) + self.bypass(x))


class FNO(nn.Module):
    def __init__(self, width, modes, layers, fixed):
        super().__init__()
        self.lift = nn.Conv2d(3, width, 1)
        self.blocks = nn.Sequential(*(Block(width, modes, fixed) for _ in range(layers)))
        self.project = nn.Sequential(
            nn.Conv2d(width, width, 1), nn.GELU(), nn.Conv2d(width, 1, 1)
        )  # fmt: skip

    def forward(self, field, grid):
        x = self.lift(torch.cat((field, grid.expand(len(field), -1, -1, -1)), dim=1))
        return field + self.project(self.blocks(x))


def smooth_fields(count, size, steepness, device):
    """Random periodic fields with a decaying spectrum."""
    k = torch.fft.fftfreq(size, 1 / size, device=device)
    decay = (1 + k[:, None] ** 2 + k[: size // 2 + 1] ** 2) ** (-steepness / 2)
    noise = torch.fft.rfft2(torch.randn(count, 1, size, size, device=device))
    fields = torch.fft.irfft2(noise * decay, s=(size, size))
    return fields / fields.std(dim=(-2, -1), keepdim=True)


def advance(fields, shift, damping):
    """What the network shall learn: drift and diffusion over one interval."""
    size = fields.shape[-1]
    k = torch.fft.fftfreq(size, 1 / size, device=fields.device)
    kx, ky = k[:, None], k[: size // 2 + 1]
    phase = torch.exp(-1j * shift * (kx + ky) - damping * (kx**2 + ky**2))
    return torch.fft.irfft2(torch.fft.rfft2(fields) * phase, s=(size, size))


def relative_l2(predicted, target):
    difference = (predicted - target).flatten(1).norm(dim=1)
    return (difference / target.flatten(1).norm(dim=1)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--modes", type=int, default=20)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--fields", type=int, default=1024)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = FNO(args.width, args.modes, args.layers, args.fixed).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    inputs = smooth_fields(args.fields, args.size, 2.5, device)
    targets = advance(inputs, 0.05, 1e-3)
    axis = torch.linspace(0, 1, args.size + 1, device=device)[:-1]
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).unsqueeze(0)

    for step in range(args.steps):
        chosen = torch.randint(args.fields, (args.batch_size,), device=device)
        loss = relative_l2(model(inputs[chosen], grid), targets[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} relative error {loss.item():.4f}")


if __name__ == "__main__":
    main()
