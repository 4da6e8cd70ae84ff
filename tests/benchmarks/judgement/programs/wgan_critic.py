"""Train a WGAN-GP on images of 64x64: some updates of the critic, then one of the generator."""

import argparse
from contextlib import nullcontext
from itertools import pairwise

import torch
from torch import nn


class UpBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.skip = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 1))
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )

    def forward(self, x):
        return self.skip(x) + self.body(x)


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.width = width
        self.start = nn.Linear(latent, 8 * width * 16)
        sizes = [8 * width, 8 * width, 4 * width, 2 * width, width]
        self.blocks = nn.Sequential(*(UpBlock(i, o) for i, o in pairwise(sizes)))
        self.end = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, z):
        x = self.start(z).view(len(z), 8 * self.width, 4, 4)
        return self.end(self.blocks(x)).tanh()


def make_critic(width):
    sizes = [3, width, 2 * width, 4 * width, 8 * width]
    layers = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Conv2d(inputs, outputs, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * width * 16, 1))


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1, 1, 1, device=real.device)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    (gradients,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (gradients.flatten(1).float().norm(2, dim=1) - 1).square().mean()


def iteration(generator, critic, optimizer_g, optimizer_d, batches, args):
    device = batches[0].device
    critic.requires_grad_(True)
    for real in batches:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            noise = torch.randn(len(real), args.latent, device=device)
            with torch.no_grad() if args.fixed else nullcontext():
                fake = generator(noise)
            loss_d = critic(fake).mean() - critic(real).mean()
            loss_d = loss_d + 10.0 * gradient_penalty(critic, real, fake)
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()

    critic.requires_grad_(False)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        noise = torch.randn(len(batches[0]), args.latent, device=device)
        loss_g = -critic(generator(noise)).mean()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
    return loss_d.detach(), loss_g.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--latent", type=int, default=128)
    parser.add_argument("--critic-steps", type=int, default=3)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    layout, fused = torch.channels_last, device.type == "cuda"
    generator = Generator(args.latent, args.width).to(device, memory_format=layout)
    critic = make_critic(args.width).to(device, memory_format=layout)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=fused)
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=fused)
    real = torch.rand(args.critic_steps * args.batch_size, 3, 64, 64, device=device) * 2 - 1
    batches = real.contiguous(memory_format=layout).split(args.batch_size)

    for step in range(args.steps):
        losses = iteration(generator, critic, optimizer_g, optimizer_d, batches, args)
        if step % 50 == 0:
            print(f"step {step} critic {losses[0].item():.4f} generator {losses[1].item():.4f}")


if __name__ == "__main__":
    main()
