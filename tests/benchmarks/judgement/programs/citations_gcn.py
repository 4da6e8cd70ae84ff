"""Find the field of each paper in a citation network with a deep residual GCN."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected


class DeepGCN(nn.Module):
    def __init__(self, features, width, classes, layers, dropout, cached):
        super().__init__()
        self.dropout = dropout
        self.embed = nn.Linear(features, width)
        self.convs = nn.ModuleList(GCNConv(width, width, cached=cached) for _ in range(layers))
        self.classify = nn.Linear(width, classes)

    def forward(self, x, edge_index):
        x = F.relu(self.embed(x))
        for conv in self.convs:
            h = F.dropout(x, self.dropout, self.training)
            x = x + F.relu(conv(h, edge_index))
        return self.classify(x)


def citation_network(papers, citations, features, classes, train_share=0.1):
    """New papers cite old ones, and those much cited already the most."""
    citing = torch.randint(1, papers, (citations,))
    cited = (citing * torch.rand(citations).pow(2)).long()
    edge_index = to_undirected(torch.stack((citing, cited)), num_nodes=papers)
    data = Data(
        x=torch.randn(papers, features),
        edge_index=edge_index,
        y=torch.randint(0, classes, (papers,)),
    )
    data.train_index = torch.randperm(papers)[: int(train_share * papers)]
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--papers", type=int, default=30000)
    parser.add_argument("--citations", type=int, default=120000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    data = citation_network(args.papers, args.citations, args.features, args.classes).to(device)
    model = DeepGCN(
        args.features, args.width, args.classes, args.layers, args.dropout, cached=args.fixed
    ).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=5e-3, weight_decay=5e-4, fused=device.type == "cuda"
    )

    targets = data.y[data.train_index]
    model.train()
    for epoch in range(args.steps):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = F.cross_entropy(out[data.train_index], targets)
        loss.backward()
        optimizer.step()
        if epoch % 100 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
