"""Contrastive learning with a momentum encoder (BYOL) on two views of each image."""

import argparse
import copy

import timm
import torch
import torch.nn.functional as F
from torch import nn


def mlp(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


@torch.no_grad()
def update_target(online, target, momentum=0.996):
    for q, k in zip(online.parameters(), target.parameters(), strict=True):
        k.data = k.data * momentum + q.data * (1.0 - momentum)


@torch.no_grad()
def update_target_at_once(online, target, momentum=0.996):
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), 1.0 - momentum)


def byol_loss(p, z):
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    encoder = timm.create_model("convnext_atto", num_classes=0)
    online = nn.Sequential(encoder, mlp(encoder.num_features, 1024, 256))
    online = online.to(device, memory_format=torch.channels_last)
    target = copy.deepcopy(online).requires_grad_(False)
    predictor = mlp(256, 1024, 256).to(device)
    params = [*online.parameters(), *predictor.parameters()]
    optimizer = torch.optim.AdamW(params, lr=1e-3, fused=device.type == "cuda")
    views = torch.randn(2, args.batch_size, 3, 128, 128, device=device)
    one, two = (x.contiguous(memory_format=torch.channels_last) for x in views)
    update = update_target_at_once if args.fixed else update_target

    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            p1, p2 = predictor(online(one)), predictor(online(two))
            with torch.no_grad():
                z1, z2 = target(one), target(two)
            loss = byol_loss(p1, z2) + byol_loss(p2, z1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update(online, target)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
