"""Classify point clouds with a DGCNN: each layer makes a graph of nearest neighbours anew."""

import argparse
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


def edge_features(x, k):
    features = []
    for cloud in x:
        distances = torch.cdist(cloud.detach(), cloud.detach())
        nearest = distances.topk(k, largest=False).indices
        neighbours = cloud[nearest]
        centers = cloud.unsqueeze(1).expand_as(neighbours)
        features.append(torch.cat((centers, neighbours - centers), dim=-1))
    return torch.stack(features)


def batched_edge_features(x, k):
    batch, count, _ = x.shape
    nearest = torch.cdist(x.detach(), x.detach()).topk(k, largest=False).indices
    first = torch.arange(batch, device=x.device).view(-1, 1, 1) * count
    neighbours = x.flatten(0, 1)[nearest + first]
    centers = x.unsqueeze(2).expand_as(neighbours)
    return torch.cat((centers, neighbours - centers), dim=-1)


class EdgeConv(nn.Module):
    def __init__(self, inputs, outputs, k, features):
        super().__init__()
        self.k, self.features = k, features
        self.mlp = nn.Sequential(
            nn.Linear(2 * inputs, outputs), nn.LayerNorm(outputs), nn.LeakyReLU(0.2)
        )

    def forward(self, x):
        return self.mlp(self.features(x, self.k)).amax(dim=2)


class DGCNN(nn.Module):
    def __init__(self, k, classes, features):
        super().__init__()
        sizes = [3, 64, 64, 128]
        self.convs = nn.ModuleList(
            EdgeConv(inputs, outputs, k, features) for inputs, outputs in pairwise(sizes)
        )
        self.mix = nn.Linear(sum(sizes[1:]), 512)
        self.head = nn.Sequential(
            nn.Linear(1024, 256), nn.LayerNorm(256), nn.LeakyReLU(0.2), nn.Linear(256, classes)
        )

    def forward(self, x):
        outputs = []
        for conv in self.convs:
            x = conv(x)
            outputs.append(x)
        x = F.leaky_relu(self.mix(torch.cat(outputs, dim=-1)), 0.2)
        return self.head(torch.cat((x.amax(dim=1), x.mean(dim=1)), dim=-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    features = batched_edge_features if args.fixed else edge_features
    model = DGCNN(args.neighbours, 40, features).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    clouds = torch.randn(8, args.batch_size, args.points, 3, device=device)
    labels = torch.randint(0, 40, (8, args.batch_size), device=device)

    for step in range(args.steps):
        loss = F.cross_entropy(model(clouds[step % 8]), labels[step % 8], label_smoothing=0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
