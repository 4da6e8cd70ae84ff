"""Train a double DQN on recorded games: frames are kept in the host's memory."""

import argparse
import random
from collections import deque
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

ACTIONS = 18


class Transition(NamedTuple):
    state: torch.Tensor
    action: int
    reward: float
    next_state: torch.Tensor
    done: bool


def make_network():
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, ACTIONS),
    )


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size, device):
        batch = random.sample(self.memory, batch_size)
        states = torch.stack([t.state.to(device) for t in batch])
        next_states = torch.stack([t.next_state.to(device) for t in batch])
        actions = torch.tensor([t.action for t in batch], device=device)
        rewards = torch.tensor([t.reward for t in batch], device=device)
        dones = torch.tensor([t.done for t in batch], dtype=torch.float32, device=device)
        return states, actions, rewards, next_states, dones


class DeviceMemory:
    """The same transitions as tensors on the device: a sample is one gather per field."""

    def __init__(self, memory, device):
        columns = list(zip(*memory.memory, strict=True))
        self.states = torch.stack(columns[0]).to(device)
        self.actions = torch.tensor(columns[1], device=device)
        self.rewards = torch.tensor(columns[2], device=device)
        self.next_states = torch.stack(columns[3]).to(device)
        self.dones = torch.tensor(columns[4], dtype=torch.float32, device=device)

    def sample(self, batch_size, device):
        i = torch.randint(len(self.states), (batch_size,), device=device)
        fields = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(field[i] for field in fields)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--memory", type=int, default=4096)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    memory = ReplayMemory(args.memory)
    state = torch.randint(0, 256, (4, 84, 84), dtype=torch.uint8)
    for _ in range(args.memory):
        following = torch.randint(0, 256, (4, 84, 84), dtype=torch.uint8)
        reward, done = float(random.random() < 0.1), random.random() < 0.01
        memory.push(state, random.randrange(ACTIONS), reward, following, done)
        state = following
    if args.fixed:
        memory = DeviceMemory(memory, device)
    policy, target = make_network().to(device), make_network().to(device)
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4, fused=device.type == "cuda")

    for step in range(args.steps):
        states, actions, rewards, next_states, dones = memory.sample(args.batch_size, device)
        values = policy(states.float() / 255).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_states = next_states.float() / 255
            best = policy(next_states).argmax(dim=1, keepdim=True)
            following = target(next_states).gather(1, best).squeeze(1)
            wanted = rewards + 0.99 * following * (1 - dones)
        loss = F.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            target.load_state_dict(policy.state_dict())
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
