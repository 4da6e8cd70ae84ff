"""Train a graph network of PyTorch Geometric on one large graph with fixed splits."""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv


class GCN(torch.nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.first, self.second = GCNConv(inputs, hidden), GCNConv(hidden, hidden)
        self.last = GCNConv(hidden, classes)

    def forward(self, x, edge_index):
        x = F.dropout(self.first(x, edge_index).relu(), 0.3, self.training)
        x = F.dropout(self.second(x, edge_index).relu(), 0.3, self.training)
        return self.last(x, edge_index)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_500_000)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    x = torch.randn(args.nodes, 128, device=device)
    edge_index = torch.randint(0, args.nodes, (2, args.edges), device=device)
    y = torch.randint(0, 40, (args.nodes,), device=device)
    train_nodes = torch.randperm(args.nodes, device=device)[: args.nodes // 2]
    wanted = y[train_nodes]
    model = GCN(128, 128, 40).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=device.type == "cuda")
    for epoch in range(args.epochs):
        loss = F.cross_entropy(model(x, edge_index)[train_nodes], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 100 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
