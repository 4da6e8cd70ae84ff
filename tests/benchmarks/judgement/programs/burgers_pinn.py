"""Solve Burgers' equation with a physics-informed network and balanced loss terms."""

import argparse
import math

import torch
from torch import nn


class Network(nn.Module):
    """A tanh network on random Fourier features of (x, t)."""

    def __init__(self, width, depth, features=64):
        super().__init__()
        self.register_buffer("projection", torch.randn(2, features))
        layers, before = [], 2 * features
        for _ in range(depth):
            layers += [nn.Linear(before, width), nn.Tanh()]
            before = width
        self.body = nn.Sequential(*layers, nn.Linear(before, 1))

    def forward(self, points):
        angles = points @ self.projection
        return self.body(torch.cat((angles.cos(), angles.sin()), dim=-1))


def residual(network, points, viscosity):
    """u_t + u u_x - nu u_xx"""
    points.requires_grad_()
    u = network(points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    u_x, u_t = first[:, :1], first[:, 1:]
    (second,) = torch.autograd.grad(u_x.sum(), points, create_graph=True)
    return u_t + u * u_x - viscosity * second[:, :1]


def loss_terms(network, interior, initial, boundary, viscosity):
    start = -torch.sin(math.pi * initial[:, :1])
    return (
        residual(network, interior, viscosity).square().mean(),
        (network(initial) - start).square().mean(),
        network(boundary).square().mean(),
    )


class Balance:
    """Weights of the terms such that their gradients have equal norms (Wang et al.)."""

    def __init__(self, terms, momentum, every, device):
        self.weights = torch.ones(terms, device=device)
        self.momentum, self.every = momentum, every

    def update(self, step, terms, parameters):
        if step % self.every:
            return
        norms = []
        for term in terms:
            grads = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
            grads = [grad for grad in grads if grad is not None]
            norms.append(torch.stack(torch._foreach_norm(grads)).norm())
        norms = torch.stack(norms)
        target = norms.sum() / norms.clamp(min=1e-8)
        self.weights.lerp_(target, 1 - self.momentum)

    def total(self, terms):
        return self.weights @ torch.stack(terms)


def sample(count, edge, device):
    interior = torch.rand(count, 2, device=device)
    interior[:, 0].mul_(2).sub_(1)
    initial = torch.rand(edge, 2, device=device)
    initial[:, 0].mul_(2).sub_(1)
    initial[:, 1].zero_()
    boundary = torch.rand(edge, 2, device=device)
    boundary[:, 0].sub_(0.5).sign_()
    return interior, initial, boundary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--points", type=int, default=65536)
    parser.add_argument("--edge-points", type=int, default=2048)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--viscosity", type=float, default=0.01 / math.pi)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = Network(args.width, args.depth).to(device)
    parameters = list(network.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)
    balance = Balance(3, args.momentum, 100 if args.fixed else 1, device)

    for step in range(args.steps):
        interior, initial, boundary = sample(args.points, args.edge_points, device)
        terms = loss_terms(network, interior, initial, boundary, args.viscosity)
        balance.update(step, terms, parameters)
        loss = balance.total(terms)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            values = ", ".join(f"{value:.3e}" for value in torch.stack(terms).tolist())
            print(f"step {step} residual, initial, boundary: {values}")


if __name__ == "__main__":
    main()
