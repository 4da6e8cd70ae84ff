"""Diagnose faults of bearings on a machine without labels: a deep adaptation network (MK-MMD)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class VibrationNet(nn.Module):
    """1D network on segments of vibration signals, with a wide first layer."""

    def __init__(self, width, features, faults):
        super().__init__()
        sizes = (
            (1, width, 64, 8),
            (width, 2 * width, 5, 2),
            (2 * width, 4 * width, 5, 2),
            (4 * width, 4 * width, 5, 2),
        )
        layers = []
        for inputs, outputs, kernel, stride in sizes:
            layers += [
                nn.Conv1d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
                nn.BatchNorm1d(outputs),
                nn.ReLU(inplace=True),
            ]
        self.convs = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.bottleneck = nn.Sequential(nn.Linear(16 * width, features), nn.ReLU())
        self.head = nn.Linear(features, faults)

    def forward(self, signal):
        features = self.bottleneck(self.convs(signal))
        return features, self.head(features)


class MultiKernelMMD(nn.Module):
    def __init__(self, kernel_mul=2.0, kernel_num=5, fixed=False):
        super().__init__()
        self.kernel_mul, self.kernel_num, self.fixed = kernel_mul, kernel_num, fixed

    def distances(self, total):
        if self.fixed:
            squares = total.square().sum(dim=1)
            return (squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * total @ total.T).clamp(min=0)
        total0 = total.unsqueeze(0).expand(total.size(0), total.size(0), total.size(1))
        total1 = total.unsqueeze(1).expand(total.size(0), total.size(0), total.size(1))
        return ((total0 - total1) ** 2).sum(2)

    def forward(self, source, target):
        total = torch.cat((source, target), dim=0)
        l2_distance = self.distances(total)
        bandwidth = l2_distance.detach().sum() / (len(total) ** 2 - len(total))
        bandwidth = bandwidth / self.kernel_mul ** (self.kernel_num // 2)
        kernels = sum(
            torch.exp(-l2_distance / (bandwidth * self.kernel_mul**i))
            for i in range(self.kernel_num)
        )
        n = len(source)
        within = kernels[:n, :n].mean() + kernels[n:, n:].mean()
        return within - kernels[:n, n:].mean() - kernels[n:, :n].mean()


def vibrations(segments, samples, speed, faults, device):
    """Shafts at one speed, with impacts at the frequency of the fault."""
    fault = torch.randint(0, faults, (segments,), device=device)
    time = torch.linspace(0, 1, samples, device=device)
    impacts = torch.cos(6.2832 * (10 + 7 * fault.unsqueeze(1)) * speed * time).pow(9)
    signal = impacts + 0.3 * torch.randn(segments, samples, device=device)
    return signal.unsqueeze(1), fault


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model = VibrationNet(args.width, args.features, args.faults).to(device)
    mmd = MultiKernelMMD(fixed=args.fixed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, weight_decay=1e-4, fused=device.type == "cuda"
    )
    rig = [vibrations(args.batch_size, args.samples, 1.0, args.faults, device) for _ in range(8)]
    plant = [
        vibrations(args.batch_size, args.samples, 1.3, args.faults, device)[0] for _ in range(8)
    ]

    for step in range(args.steps):
        source, fault = rig[step % len(rig)]
        target = plant[step % len(plant)]
        features, logits = model(torch.cat((source, target)))
        source_features, target_features = features.split(args.batch_size)
        classification = F.cross_entropy(logits[: args.batch_size], fault)
        transfer = mmd(source_features, target_features)
        loss = classification + min(1.0, step / 200) * transfer
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(
                f"step {step} classification {classification.item():.4f} transfer {transfer.item():.4f}"
            )


if __name__ == "__main__":
    main()
