"""DCGAN, with the statistics of both networks, as in PyTorch's own tutorial."""

import argparse

import torch
from torch import nn


def generator(latent, width):
    def up(inputs, outputs, stride, padding):
        return (
            nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(True),
        )

    return nn.Sequential(
        *up(latent, width * 8, 1, 0),
        *up(width * 8, width * 4, 2, 1),
        *up(width * 4, width * 2, 2, 1),
        *up(width * 2, width, 2, 1),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def discriminator(width):
    def down(inputs, outputs):
        return (
            nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.2, inplace=True),
        )

    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        *down(width, width * 2),
        *down(width * 2, width * 4),
        *down(width * 4, width * 8),
        nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    netG, netD = generator(100, 64).to(device), discriminator(64).to(device)
    criterion = nn.BCELoss()
    fused = device.type == "cuda"
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=fused)
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=fused)
    data = torch.rand(16, args.batch_size, 3, 64, 64, device=device) * 2 - 1
    G_losses, D_losses, statistics = [], [], []

    for i in range(args.steps):
        # Update D: maximize log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        real = data[i % len(data)]
        label = torch.full((args.batch_size,), 1.0, device=device)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().detach() if args.fixed else output.mean().item()

        noise = torch.randn(args.batch_size, 100, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(0.0)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().detach() if args.fixed else output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()

        # Update G: maximize log(D(G(z)))
        netG.zero_grad()
        label.fill_(1.0)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.mean().detach() if args.fixed else output.mean().item()
        optimizerG.step()

        G_losses.append(errG.detach() if args.fixed else errG.item())
        D_losses.append(errD.detach() if args.fixed else errD.item())
        statistics.append((D_x, D_G_z1, D_G_z2))
        if i % 100 == 0:
            print(f"[{i}/{args.steps}] Loss_D {float(errD):.4f} Loss_G {float(errG):.4f}")


if __name__ == "__main__":
    main()
