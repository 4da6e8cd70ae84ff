"""Learner of IMPALA for a legged robot: V-trace targets over long unrolls."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self, observation, actions, width):
        super().__init__()
        self.torso = nn.Sequential(
            nn.Linear(observation, width),
            nn.LayerNorm(width),
            nn.ELU(),
            nn.Linear(width, width),
            nn.ELU(),
            nn.Linear(width, width),
            nn.ELU(),
        )
        self.policy = nn.Linear(width, actions)
        self.baseline = nn.Linear(width, 1)

    def forward(self, observations):
        x = self.torso(observations)
        return F.log_softmax(self.policy(x), dim=-1), self.baseline(x).squeeze(-1)


def accumulate(deltas, decays):
    """acc[t] = deltas[t] + decays[t] * acc[t + 1], from the last time to the first."""
    acc = torch.zeros_like(deltas[0])
    result = []
    for t in range(deltas.shape[0] - 1, -1, -1):
        acc = deltas[t] + decays[t] * acc
        result.append(acc)
    result.reverse()
    return torch.stack(result)


def accumulate_doubling(deltas, decays):
    """The same, the reach of each entry doubled in every round."""
    length, reach = deltas.shape[0], 1
    while reach < length:
        later = F.pad(deltas[reach:], (0, 0, 0, reach))
        deltas = deltas + decays * later
        decays = decays * F.pad(decays[reach:], (0, 0, 0, reach))
        reach *= 2
    return deltas


@torch.no_grad()
def vtrace(log_rhos, discounts, rewards, values, bootstrap, fixed):
    rhos = log_rhos.exp().clamp(max=1.0)
    following = torch.cat((values[1:], bootstrap.unsqueeze(0)))
    deltas = rhos * (rewards + discounts * following - values)
    scan = accumulate_doubling if fixed else accumulate
    targets = scan(deltas, discounts * rhos) + values
    following = torch.cat((targets[1:], bootstrap.unsqueeze(0)))
    return targets, rhos * (rewards + discounts * following - values)


def make_unroll(length, robots, observation, actions, device):
    """An unroll as the simulator leaves it on the device."""
    return {
        "observation": torch.randn(length + 1, robots, observation, device=device),
        "action": torch.randint(0, actions, (length, robots), device=device),
        "log_prob": torch.log_softmax(torch.randn(length, robots, actions, device=device), -1)[
            ..., 0
        ],
        "reward": torch.randn(length, robots, device=device),
        "discount": 0.99 * (torch.rand(length, robots, device=device) > 0.01).float(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--robots", type=int, default=512)
    parser.add_argument("--observation", type=int, default=96)
    parser.add_argument("--actions", type=int, default=24)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = ActorCritic(args.observation, args.actions, args.width).to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4, eps=0.01)
    sizes = (args.length, args.robots, args.observation, args.actions)
    unrolls = [make_unroll(*sizes, device) for _ in range(4)]

    for step in range(args.steps):
        unroll = unrolls[step % len(unrolls)]
        log_policy, values = model(unroll["observation"])
        log_policy, bootstrap, values = log_policy[:-1], values[-1], values[:-1]
        log_prob = log_policy.gather(-1, unroll["action"].unsqueeze(-1)).squeeze(-1)
        targets, advantages = vtrace(
            (log_prob - unroll["log_prob"]).detach(),
            unroll["discount"],
            unroll["reward"],
            values.detach(),
            bootstrap.detach(),
            args.fixed,
        )
        policy_loss = -(log_prob * advantages).mean()
        value_loss = 0.5 * F.mse_loss(values, targets)
        entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 40.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} entropy {entropy.item():.4f}")


if __name__ == "__main__":
    main()
