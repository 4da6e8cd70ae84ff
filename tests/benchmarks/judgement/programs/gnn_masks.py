"""Classify the nodes of a graph with GraphSAGE, as in the examples of PyTorch Geometric."""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv


class SAGE(torch.nn.Module):
    def __init__(self, inputs, hidden, classes, layers=4):
        super().__init__()
        sizes = [inputs, *[hidden] * (layers - 1), classes]
        self.convs = torch.nn.ModuleList(map(SAGEConv, sizes[:-1], sizes[1:]))

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = F.dropout(conv(x, edge_index).relu(), p=0.5, training=self.training)
        return self.convs[-1](x, edge_index)


def train(model, data, optimizer, train_nodes):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[train_nodes], data.y[train_nodes])
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def test(model, data):
    model.eval()
    pred = model(data.x, data.edge_index).argmax(dim=-1)
    accuracies = []
    for mask in (data.train_mask, data.val_mask, data.test_mask):
        accuracies.append(int((pred[mask] == data.y[mask]).sum()) / int(mask.sum()))
    return accuracies


@torch.no_grad()
def test_on_device(model, data, splits):
    model.eval()
    right = model(data.x, data.edge_index).argmax(dim=-1) == data.y
    return torch.stack([right[nodes].float().mean() for nodes in splits])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=600)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--edges", type=int, default=60_000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    part = torch.rand(args.nodes)
    data = Data(
        x=torch.randn(args.nodes, 128),
        edge_index=torch.randint(0, args.nodes, (2, args.edges)),
        y=torch.randint(0, 40, (args.nodes,)),
        train_mask=part < 0.5,
        val_mask=(part >= 0.5) & (part < 0.7),
        test_mask=part >= 0.7,
    ).to(device)
    model = SAGE(128, 256, 40).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    masks = (data.train_mask, data.val_mask, data.test_mask)
    splits = [mask.nonzero().squeeze(1) for mask in masks]

    for epoch in range(args.epochs):
        if args.fixed:
            loss = train(model, data, optimizer, splits[0])
            accuracies = test_on_device(model, data, splits)
        else:
            loss = train(model, data, optimizer, data.train_mask)
            accuracies = test(model, data)
        if epoch % 100 == 0:
            print(f"epoch {epoch} loss {float(loss):.4f} accuracy {float(accuracies[1]):.3f}")


if __name__ == "__main__":
    main()
