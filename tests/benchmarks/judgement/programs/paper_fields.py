"""Classify papers of a citation graph: predict, then propagate (APPNP), on the full graph."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def normalized_adjacency(edges, nodes):
    """D^-1/2 (A + I) D^-1/2 of the undirected graph, as a sparse matrix."""
    loops = torch.arange(nodes, device=edges.device).expand(2, -1)
    index = torch.cat((edges, edges.flip(0), loops), dim=1)
    degree = torch.bincount(index[0], minlength=nodes).float()
    values = (degree[index[0]] * degree[index[1]]).rsqrt()
    return torch.sparse_coo_tensor(index, values, (nodes, nodes))


class SymmetricProduct(torch.autograd.Function):
    """Product with a symmetric matrix, which is its own transpose in the backward pass."""

    @staticmethod
    def forward(ctx, matrix, x):
        ctx.matrix = matrix
        return torch.mm(matrix, x)

    @staticmethod
    def backward(ctx, gradient):
        return None, torch.mm(ctx.matrix, gradient)


class APPNP(nn.Module):
    def __init__(self, features, width, classes, hops, teleport=0.1, dropout=0.5):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(features, width), nn.Linear(width, classes)
        self.hops, self.teleport, self.dropout = hops, teleport, dropout

    def forward(self, x, adjacency, product):
        x = F.dropout(x, self.dropout, self.training)
        x = F.dropout(F.relu(self.lin1(x)), self.dropout, self.training)
        start = z = self.lin2(x)
        for _ in range(self.hops):
            z = (1 - self.teleport) * product(adjacency, z) + self.teleport * start
        return z


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--nodes", type=int, default=120000)
    parser.add_argument("--edges", type=int, default=1000000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--classes", type=int, default=64)
    parser.add_argument("--hops", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    edges = torch.randint(0, args.nodes, (2, args.edges), device=device)
    features = torch.randn(args.nodes, args.features, device=device)
    labels = torch.randint(0, args.classes, (args.nodes,), device=device)
    train = torch.randperm(args.nodes, device=device)[: args.nodes // 2]
    train_labels = labels[train]

    adjacency, product = normalized_adjacency(edges, args.nodes), torch.sparse.mm
    if args.fixed:
        adjacency, product = adjacency.coalesce().to_sparse_csr(), SymmetricProduct.apply
    model = APPNP(args.features, args.width, args.classes, args.hops).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    model.train()
    for step in range(args.steps):
        scores = model(features, adjacency, product)
        loss = F.cross_entropy(scores.index_select(0, train), train_labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
