"""Clone demonstrations of a robot arm: two cameras and joints in, a chunk of actions out."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x), inplace=True)


class Policy(nn.Module):
    def __init__(self, cameras, joints, chunk, width):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3)
        self.trunk = nn.Sequential(
            Residual(width, width, 2),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
            Residual(4 * width, 8 * width, 2),
        )
        self.head = nn.Sequential(
            nn.Linear(cameras * 8 * width + joints, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, chunk * joints),
        )
        self.chunk, self.joints = chunk, joints

    def forward(self, images, state):
        batch, _cameras = images.shape[:2]
        x = images.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        x = self.trunk(F.relu(self.stem(x))).mean(dim=(2, 3)).view(batch, -1)
        actions = self.head(torch.cat((x, state), dim=1))
        return actions.view(batch, self.chunk, self.joints)


class Demonstrations:
    """All episodes in memory; frames as the cameras gave them."""

    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __init__(self, frames, cameras, size, joints, chunk):
        self.images = torch.randint(0, 256, (frames, cameras, 3, size, size), dtype=torch.uint8)
        self.states = torch.randn(frames, joints)
        self.actions = torch.randn(frames, chunk, joints)

    def sample(self, count):
        index = torch.randint(0, len(self.states), (count,))
        return self.images[index], self.states[index], self.actions[index]


def normalize(images, mean, std):
    return (images.float() / 255.0 - mean) / std


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--frames", type=int, default=1500)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision="bf16")
    device = accelerator.device
    torch.backends.cudnn.benchmark = True
    demos = Demonstrations(args.frames, 2, args.size, 7, args.chunk)
    model = Policy(2, 7, args.chunk, args.width).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    mean, std = demos.mean, demos.std
    if args.fixed:
        mean, std = mean.to(device), std.to(device)

    model.train()
    for step in range(args.steps):
        images, state, actions = demos.sample(args.batch_size)
        if args.fixed:
            images = normalize(images.to(device), mean, std)
        else:
            images = normalize(images, mean, std).to(device)
        state, actions = state.to(device), actions.to(device)
        loss = F.l1_loss(model(images, state), actions)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 50 == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
