"""Update the policy of a legged robot with PPO on rollouts of a simulator."""

import argparse

import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal


def mlp(inputs, hidden, outputs):
    layers = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ELU()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class ActorCritic(nn.Module):
    def __init__(self, observations, actions, hidden, diagonal):
        super().__init__()
        self.actor = mlp(observations, hidden, actions)
        self.critic = mlp(observations, hidden, 1)
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))
        self.diagonal = diagonal

    def distribution(self, mean):
        std = self.log_std.exp().expand_as(mean)
        if self.diagonal:
            return Independent(Normal(mean, std, validate_args=False), 1, validate_args=False)
        return MultivariateNormal(mean, torch.diag_embed(std.square()))

    def evaluate(self, observations, actions):
        distribution = self.distribution(self.actor(observations))
        values = self.critic(observations).squeeze(1)
        return distribution.log_prob(actions), distribution.entropy(), values


def make_rollout(samples, observations, actions, device):
    """What 4096 parallel robots left behind, with advantages already estimated."""
    advantages = torch.randn(samples, device=device)
    return {
        "observations": torch.randn(samples, observations, device=device),
        "actions": 0.6 * torch.randn(samples, actions, device=device),
        "log_probs": -8 + torch.randn(samples, device=device),
        "advantages": (advantages - advantages.mean()) / advantages.std(),
        "returns": torch.randn(samples, device=device),
        "values": torch.randn(samples, device=device),
    }


def ppo_loss(log_probs, entropy, values, batch, clip):
    ratio = (log_probs - batch["log_probs"]).exp()
    advantages = batch["advantages"]
    policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
    clipped = batch["values"] + (values - batch["values"]).clamp(-clip, clip)
    errors = (values - batch["returns"]).square(), (clipped - batch["returns"]).square()
    return policy + 0.5 * torch.max(*errors).mean() - 0.005 * entropy.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--robots", type=int, default=4096)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--minibatches", type=int, default=2)
    parser.add_argument("--observations", type=int, default=235)
    parser.add_argument("--actions", type=int, default=12)
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    policy = ActorCritic(args.observations, args.actions, args.hidden, args.fixed).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=device.type == "cuda")
    samples = args.robots * args.horizon
    rollout = make_rollout(samples, args.observations, args.actions, device)

    for step in range(args.steps):
        part = step % args.minibatches
        if part == 0:
            shuffled = torch.randperm(samples, device=device).chunk(args.minibatches)
        batch = {name: values[shuffled[part]] for name, values in rollout.items()}
        log_probs, entropy, values = policy.evaluate(batch["observations"], batch["actions"])
        loss = ppo_loss(log_probs, entropy, values, batch, clip=0.2)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"update {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
