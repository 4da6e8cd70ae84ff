"""Train a network that finds persons again (re-identification) with hard triplets of a batch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import ResNetConfig, ResNetModel


class TripletLoss(nn.Module):
    """The farthest image of the same person, and the nearest one of somebody else."""

    def __init__(self, margin=0.3):
        super().__init__()
        self.ranking = nn.MarginRankingLoss(margin=margin)

    def forward(self, features, persons):
        n = features.size(0)
        dist = torch.cdist(features, features)
        mask = persons.expand(n, n).eq(persons.expand(n, n).t())
        dist_ap, dist_an = [], []
        for i in range(n):
            dist_ap.append(dist[i][mask[i]].max().unsqueeze(0))
            dist_an.append(dist[i][mask[i] == 0].min().unsqueeze(0))
        dist_ap, dist_an = torch.cat(dist_ap), torch.cat(dist_an)
        return self.ranking(dist_an, dist_ap, torch.ones_like(dist_an))


class DenseTripletLoss(TripletLoss):
    """The same for all images at once."""

    def forward(self, features, persons):
        dist = torch.cdist(features, features)
        mask = persons.unsqueeze(0) == persons.unsqueeze(1)
        dist_ap = dist.masked_fill(~mask, -torch.inf).amax(dim=1)
        dist_an = dist.masked_fill(mask, torch.inf).amin(dim=1)
        return self.ranking(dist_an, dist_ap, torch.ones_like(dist_an))


class Network(nn.Module):
    def __init__(self, persons):
        super().__init__()
        config = ResNetConfig(depths=[3, 4, 6, 3], downsample_in_first_stage=False)
        self.backbone = ResNetModel(config)
        self.neck = nn.BatchNorm1d(config.hidden_sizes[-1])
        self.classifier = nn.Linear(config.hidden_sizes[-1], persons, bias=False)

    def forward(self, images):
        features = self.backbone(images).pooler_output.flatten(1)
        return features.float(), self.classifier(self.neck(features))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--persons", type=int, default=16)
    parser.add_argument("--images", type=int, default=4, help="of each person in a batch")
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = Network(751).to(device, memory_format=torch.channels_last)
    triplets = DenseTripletLoss() if args.fixed else TripletLoss()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=3.5e-4, weight_decay=5e-4, fused=device.type == "cuda"
    )
    batches = []
    for _ in range(4):
        persons = torch.randperm(751, device=device)[: args.persons]
        images = torch.randn(args.persons * args.images, 3, 256, 128, device=device)
        images = images.contiguous(memory_format=torch.channels_last)
        batches.append((images, persons.repeat_interleave(args.images)))

    for step in range(args.steps):
        images, persons = batches[step % 4]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            features, logits = model(images)
        loss = F.cross_entropy(logits.float(), persons) + triplets(features, persons)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
