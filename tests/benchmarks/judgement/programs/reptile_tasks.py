"""Few-shot learning with Reptile: a copy of the model learns each task, the model follows it."""

import argparse
import copy
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        sizes = [inputs, outputs, outputs, outputs]
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(3))
        self.skip = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x):
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = F.leaky_relu(norm(conv(y)), 0.1)
        return F.max_pool2d(y + self.skip(x), 2)


def make_model(ways):
    sizes = [3, 64, 128, 256, 384]
    blocks = [Block(i, o) for i, o in pairwise(sizes)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], ways))


class Learners:
    """Gives a learner that starts where the model is, and its optimizer."""

    def __init__(self, model, lr, keep):
        self.model, self.lr = model, lr
        self.kept = self.copy() if keep else None

    def copy(self):
        learner = copy.deepcopy(self.model)
        return learner, torch.optim.SGD(learner.parameters(), lr=self.lr)

    @torch.no_grad()
    def start(self):
        if self.kept is None:
            return self.copy()
        learner, _ = self.kept
        torch._foreach_copy_(list(learner.parameters()), list(self.model.parameters()))
        for buffer, source in zip(learner.buffers(), self.model.buffers(), strict=True):
            if buffer.is_floating_point():
                buffer.copy_(source)
        return self.kept


def meta_step(model, learners, tasks, inner_steps, meta_lr):
    params = list(model.parameters())
    total = [torch.zeros_like(p) for p in params]
    for images, labels in tasks:
        learner, optimizer = learners.start()
        for _ in range(inner_steps):
            loss = F.cross_entropy(learner(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            torch._foreach_add_(total, list(learner.parameters()), alpha=1 / len(tasks))
    with torch.no_grad():
        torch._foreach_lerp_(params, total, meta_lr)
    return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--inner-steps", type=int, default=3)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = make_model(args.ways).to(device)
    learners = Learners(model, lr=0.01, keep=args.fixed)
    count = args.ways * args.shots
    images = torch.randn(args.tasks, count, 3, args.size, args.size, device=device)
    labels = torch.arange(args.ways, device=device).repeat(args.tasks, args.shots)
    for step in range(args.steps):
        tasks = list(zip(images, labels, strict=True))
        loss = meta_step(model, learners, tasks, args.inner_steps, meta_lr=0.1)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
