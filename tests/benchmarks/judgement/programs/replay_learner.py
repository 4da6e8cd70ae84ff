"""Learner of a distributed DQN (Ape-X): double Q-learning from prioritized replay."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))


class QNetwork(nn.Module):
    """The residual network of IMPALA with a dueling head."""

    def __init__(self, actions, widths, size):
        super().__init__()
        layers, channels = [], 4
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [Residual(width), Residual(width)]
            channels, size = width, (size + 1) // 2
        self.encoder = nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
        self.hidden = nn.Linear(channels * size * size, 512)
        self.value = nn.Linear(512, 1)
        self.advantage = nn.Linear(512, actions)

    def forward(self, frames):
        x = F.relu(self.hidden(self.encoder(frames)))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


class SumTree:
    """Priorities in the leaves of a binary tree, sums of the children above them."""

    def __init__(self, capacity, device):
        self.capacity, self.device = capacity, device
        self.tree = np.zeros(2 * capacity, dtype=np.float64)
        self.rng = np.random.default_rng(0)

    def update(self, indices, priorities):
        indices, priorities = indices.cpu().numpy(), priorities.cpu().numpy()
        for index, priority in zip(indices, priorities):
            node = index + self.capacity
            change = priority - self.tree[node]
            while node >= 1:
                self.tree[node] += change
                node //= 2

    def find(self, mass):
        node = 1
        while node < self.capacity:
            node *= 2
            if mass >= self.tree[node]:
                mass -= self.tree[node]
                node += 1
        return node - self.capacity

    def sample(self, count):
        total = self.tree[1]
        strata = (np.arange(count) + self.rng.random(count)) * total / count
        indices = np.array([self.find(mass) for mass in strata])
        chances = (self.tree[indices + self.capacity] / total).astype(np.float32)
        indices, chances = torch.from_numpy(indices), torch.from_numpy(chances)
        return indices.to(self.device), chances.to(self.device)


class FlatPriorities:
    """Priorities in one tensor on the device, sampled by their running sum."""

    def __init__(self, capacity, device):
        self.priorities = torch.zeros(capacity, dtype=torch.float64, device=device)

    def update(self, indices, priorities):
        self.priorities[indices] = priorities.double()

    def sample(self, count):
        sums = self.priorities.cumsum(0)
        strata = torch.arange(count, device=sums.device) + torch.rand(count, device=sums.device)
        indices = torch.searchsorted(sums, strata * sums[-1] / count, right=True)
        indices = indices.clamp(max=len(sums) - 1)
        return indices, (self.priorities[indices] / sums[-1]).float()


class Replay:
    """Transitions on the device; the oldest are overwritten."""

    def __init__(self, capacity, size, actions, fixed, device):
        shape = (capacity, 4, size, size)
        self.frames = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
        self.following = self.frames.roll(1, 0)
        self.action = torch.randint(0, actions, (capacity,), device=device)
        self.reward = torch.randn(capacity, device=device)
        self.discount = 0.97 * (torch.rand(capacity, device=device) > 0.01).float()
        self.priorities = (FlatPriorities if fixed else SumTree)(capacity, device)
        self.priorities.update(
            torch.arange(capacity, device=device), 0.1 + torch.rand(capacity, device=device)
        )

    def batch(self, indices):
        def images(frames):
            return frames[indices].contiguous(memory_format=torch.channels_last) / 255.0

        return (
            images(self.frames),
            images(self.following),
            self.action[indices],
            self.reward[indices],
            self.discount[indices],
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--capacity", type=int, default=1 << 16)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--actions", type=int, default=18)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 32])
    parser.add_argument("--alpha", type=float, default=0.6)
    parser.add_argument("--beta", type=float, default=0.4)
    parser.add_argument("--target-every", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    online = QNetwork(args.actions, args.widths, args.size)
    target = QNetwork(args.actions, args.widths, args.size)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    online.to(device, memory_format=torch.channels_last)
    target.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(
        online.parameters(), lr=1e-4, eps=1.5e-4, fused=device.type == "cuda"
    )
    replay = Replay(args.capacity, args.size, args.actions, args.fixed, device)

    for step in range(args.steps):
        indices, chances = replay.priorities.sample(args.batch_size)
        frames, following, action, reward, discount = replay.batch(indices)
        weights = (args.capacity * chances).pow(-args.beta)
        weights = weights / weights.max()

        with torch.autocast(device.type, dtype=torch.bfloat16):
            with torch.no_grad():
                best = online(following).argmax(dim=1, keepdim=True)
                future = target(following).gather(1, best).squeeze(1).float()
            values = online(frames).gather(1, action.unsqueeze(1)).squeeze(1).float()
        errors = reward + discount * future - values
        loss = (weights * F.huber_loss(errors, torch.zeros_like(errors), reduction="none")).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()

        replay.priorities.update(indices, (errors.detach().abs() + 1e-3).pow(args.alpha))
        if (step + 1) % args.target_every == 0:
            target.load_state_dict(online.state_dict())
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
