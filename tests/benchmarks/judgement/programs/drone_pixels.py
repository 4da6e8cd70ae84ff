"""Double DQN from pixels: drones chase a beacon in a simulator that runs on the device."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Arena:
    """Many drones at once; each sees itself, its beacon, and its last position."""

    def __init__(self, count, side, device):
        self.count, self.device = count, device
        self.axis = torch.linspace(0, 1, side, device=device)
        turns = torch.arange(8, device=device) * (torch.pi / 4)
        self.moves = torch.cat(
            (torch.zeros(1, 2, device=device), torch.stack((turns.cos(), turns.sin()), 1))
        )
        self.drone, self.beacon = self.random_places(), self.random_places()
        self.last, self.speed = self.drone.clone(), torch.zeros_like(self.drone)
        self.age = torch.zeros(count, device=device)

    def random_places(self):
        return torch.rand(self.count, 2, device=self.device)

    def render(self):
        places = torch.stack((self.drone, self.beacon, self.last), dim=1)
        near = torch.exp(-400 * (self.axis - places.unsqueeze(-1)).square())
        return (255 * near[:, :, 0, :, None] * near[:, :, 1, None, :]).to(torch.uint8)

    def step(self, action):
        self.last = self.drone
        self.speed = 0.8 * self.speed + 0.01 * self.moves[action]
        self.drone = (self.drone + self.speed).clamp(0, 1)
        distance = (self.drone - self.beacon).norm(dim=1)
        self.age = self.age + 1
        caught = distance < 0.05
        over = (caught | (self.age > 200)).unsqueeze(1)
        seen = self.render()
        self.drone = torch.where(over, self.random_places(), self.drone)
        self.beacon = torch.where(over, self.random_places(), self.beacon)
        self.last = torch.where(over, self.drone, self.last)
        self.speed = torch.where(over, 0.0, self.speed)
        self.age = torch.where(over.squeeze(1), 0.0, self.age)
        return seen, caught.float() - 0.1 * distance, caught.float()


class Memory:
    """The latest transitions, oldest first."""

    def __init__(self, capacity, fields):
        self.capacity, self.filled = capacity, 0
        self.fields = fields

    def add(self, transitions):
        count = len(transitions["action"])
        for name, new in transitions.items():
            self.fields[name] = torch.cat((self.fields[name][count:], new))
        self.filled = min(self.filled + count, self.capacity)

    def sample(self, count, device):
        rows = torch.randint(self.capacity - self.filled, self.capacity, (count,), device=device)
        return {name: field[rows] for name, field in self.fields.items()}


class Ring(Memory):
    """The same transitions, the oldest ones overwritten where they lie."""

    cursor = 0

    def add(self, transitions):
        count = len(transitions["action"])
        for name, new in transitions.items():
            self.fields[name][self.cursor : self.cursor + count].copy_(new)
        self.cursor = (self.cursor + count) % self.capacity
        self.filled = min(self.filled + count, self.capacity)

    def sample(self, count, device):
        rows = torch.randint(0, self.filled, (count,), device=device)
        return {name: field[rows] for name, field in self.fields.items()}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))


class QNetwork(nn.Module):
    """The residual torso of IMPALA, with dueling heads."""

    def __init__(self, side, actions, widths):
        super().__init__()
        layers, previous = [], 3
        for width in widths:
            layers += [nn.Conv2d(previous, width, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
            layers += [Residual(width), Residual(width)]
            previous, side = width, (side + 1) // 2
        self.torso = nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
        self.hidden = nn.Linear(previous * side * side, 512)
        self.value, self.advantage = nn.Linear(512, 1), nn.Linear(512, actions)

    def forward(self, images):
        x = images.to(dtype=torch.bfloat16, memory_format=torch.channels_last) / 255
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            x = F.relu(self.hidden(self.torso(x)))
            advantage = self.advantage(x)
            return (self.value(x) + advantage - advantage.mean(1, keepdim=True)).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--drones", type=int, default=256)
    parser.add_argument("--side", type=int, default=84)
    parser.add_argument("--capacity", type=int, default=160 * 1024)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 64])
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    if args.capacity % args.drones:
        parser.error("the capacity must be a multiple of the number of drones")

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    actions = 9
    online = QNetwork(args.side, actions, args.widths).to(device, memory_format=torch.channels_last)
    target = QNetwork(args.side, actions, args.widths).to(device, memory_format=torch.channels_last)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=device.type == "cuda")
    pairs = list(target.parameters()), list(online.parameters())

    picture = (args.capacity, 3, args.side, args.side)
    fields = {
        "image": torch.zeros(picture, dtype=torch.uint8, device=device),
        "following": torch.zeros(picture, dtype=torch.uint8, device=device),
        "action": torch.zeros(args.capacity, dtype=torch.long, device=device),
        "reward": torch.zeros(args.capacity, device=device),
        "terminal": torch.zeros(args.capacity, device=device),
    }
    memory = (Ring if args.fixed else Memory)(args.capacity, fields)
    arena = Arena(args.drones, args.side, device)

    for step in range(args.steps):
        epsilon = max(0.05, 1 - step / 300)
        with torch.no_grad():
            image = arena.render()
            greedy = online(image).argmax(dim=1)
            explore = torch.rand(args.drones, device=device) < epsilon
            action = torch.where(explore, torch.randint_like(greedy, actions), greedy)
            following, reward, terminal = arena.step(action)
            transition = {"image": image, "following": following, "action": action}
            memory.add(transition | {"reward": reward, "terminal": terminal})

            batch = memory.sample(args.batch_size, device)
            best = online(batch["following"]).argmax(dim=1, keepdim=True)
            later = target(batch["following"]).gather(1, best).squeeze(1)
            wanted = batch["reward"] + 0.99 * (1 - batch["terminal"]) * later
        value = online(batch["image"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(*pairs, 0.005)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} reward {reward.mean().item():.4f}")


if __name__ == "__main__":
    main()
