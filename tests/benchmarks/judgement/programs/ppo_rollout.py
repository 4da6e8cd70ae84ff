"""PPO on a vectorized environment that is simulated on the GPU: a rollout, then a few updates."""

import argparse

import torch
from torch import nn
from torch.distributions import Distribution, Normal


class ActorCritic(nn.Module):
    def __init__(self, observations, actions, width=256):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(observations, width),
            nn.ELU(),
            nn.Linear(width, width),
            nn.ELU(),
            nn.Linear(width, actions),
        )
        self.critic = nn.Sequential(
            nn.Linear(observations, width),
            nn.ELU(),
            nn.Linear(width, width),
            nn.ELU(),
            nn.Linear(width, 1),
        )
        self.log_std = nn.Parameter(torch.zeros(actions))

    def distribution(self, observations):
        return Normal(self.actor(observations), self.log_std.exp())


class Environment:
    """A cloud of points that should be pushed to the origin."""

    def __init__(self, count, size, device):
        self.state = torch.randn(count, size, device=device)

    def step(self, action):
        self.state = self.state * 0.98 + 0.1 * action.tanh()
        reward = -self.state.square().mean(dim=1)
        done = reward < -4.0
        self.state = torch.where(done.unsqueeze(1), torch.randn_like(self.state), self.state)
        return self.state, reward, done


def iterate(model, env, optimizer, horizon, epochs):
    observation = env.state
    rows = []
    with torch.no_grad():
        for _ in range(horizon):
            policy = model.distribution(observation)
            action = policy.sample()
            log_prob = policy.log_prob(action).sum(-1)
            value = model.critic(observation).squeeze(-1)
            following, reward, done = env.step(action)
            rows.append((observation, action, log_prob, value, reward, done.float()))
            observation = following
    states, actions, old_log_probs, values, rewards, dones = map(
        torch.stack, zip(*rows, strict=True)
    )

    advantages, last = torch.empty_like(rewards), 0.0
    for t in reversed(range(horizon)):
        following_value = values[t + 1] if t + 1 < horizon else values[t]
        delta = rewards[t] + 0.99 * following_value * (1 - dones[t]) - values[t]
        last = delta + 0.99 * 0.95 * (1 - dones[t]) * last
        advantages[t] = last
    returns = advantages + values
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    for _ in range(epochs):
        policy = model.distribution(states)
        ratio = (policy.log_prob(actions).sum(-1) - old_log_probs).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        value_loss = (model.critic(states).squeeze(-1) - returns).square().mean()
        loss = -surrogate.mean() + 0.5 * value_loss - 0.01 * policy.entropy().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return rewards.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--environments", type=int, default=4096)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    if args.fixed:
        Distribution.set_default_validate_args(False)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = ActorCritic(48, 12).to(device)
    env = Environment(args.environments, 48, device)
    env.step = lambda action, step=env.step: step(nn.functional.pad(action, (0, 36)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    for iteration in range(args.iterations):
        reward = iterate(model, env, optimizer, args.horizon, epochs=4)
        if iteration % 50 == 0:
            print(f"iteration {iteration} reward {reward.item():.4f}")


if __name__ == "__main__":
    main()
