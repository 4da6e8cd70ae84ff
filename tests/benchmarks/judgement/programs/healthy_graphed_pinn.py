"""Solve Burgers' equation with a physics-informed network, whose step is one CUDA graph."""

import argparse
import math
from itertools import pairwise

import torch
from torch import nn


def make_network(width, layers):
    sizes = [2, *[width] * layers]
    hidden = []
    for inputs, outputs in pairwise(sizes):
        hidden += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual_loss(model, count, device):
    """Of random points inside, of the start, and of both ends."""
    x = (torch.rand(count, 1, device=device) * 2 - 1).requires_grad_(True)
    t = torch.rand(count, 1, device=device).requires_grad_(True)
    u = model(torch.cat((x, t), dim=1))
    u_x, u_t = derivative(u, x), derivative(u, t)
    inside = u_t + u * u_x - 0.01 / math.pi * derivative(u_x, x)

    x0 = torch.rand(count // 8, 1, device=device) * 2 - 1
    start = model(torch.cat((x0, torch.zeros_like(x0)), dim=1)) + torch.sin(math.pi * x0)
    t0 = torch.rand(count // 8, 1, device=device)
    ends = model(torch.cat((torch.ones_like(t0), t0), dim=1))
    return inside.square().mean() + start.square().mean() + ends.square().mean()


def captured(update, optimizer):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            update()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = update()

    def replay():
        graph.replay()
        return loss

    return replay


def train_step(step):
    return step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--points", type=int, default=65_536)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=5)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = make_network(args.width, args.layers).to(device)
    graphed = device.type == "cuda"
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=graphed, capturable=graphed)

    def update():
        loss = residual_loss(model, args.points, device)
        loss.backward()
        optimizer.step()
        if not graphed:
            optimizer.zero_grad()
        return loss.detach()

    step = captured(update, optimizer) if graphed else update
    for number in range(args.steps):
        loss = train_step(step)
        if number % 200 == 0:
            print(f"step {number} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
