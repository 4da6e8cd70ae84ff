"""Complete a large knowledge graph with ComplEx embeddings and sampled negatives."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class ComplEx(nn.Module):
    def __init__(self, entities, relations, rank, sparse, device):
        super().__init__()
        self.entity = nn.Embedding(entities, 2 * rank, sparse=sparse, device=device)
        self.relation = nn.Embedding(relations, 2 * rank, device=device)
        nn.init.normal_(self.entity.weight, std=0.05)
        nn.init.normal_(self.relation.weight, std=0.05)

    def query(self, head, relation):
        h_re, h_im = self.entity(head).chunk(2, dim=-1)
        r_re, r_im = self.relation(relation).chunk(2, dim=-1)
        return torch.cat((h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re), dim=-1)

    def forward(self, head, relation, tail, negatives):
        query = self.query(head, relation)
        positive = (query * self.entity(tail)).sum(dim=-1)
        negative = torch.bmm(self.entity(negatives), query.unsqueeze(-1)).squeeze(-1)
        return positive, negative


def adversarial_loss(positive, negative, temperature=1.0):
    weights = F.softmax(temperature * negative.detach(), dim=-1)
    negative = (weights * F.logsigmoid(-negative)).sum(dim=-1)
    return -0.5 * (F.logsigmoid(positive) + negative).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--entities", type=int, default=4_600_000)
    parser.add_argument("--relations", type=int, default=822)
    parser.add_argument("--triples", type=int, default=20_000_000)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--negatives", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = ComplEx(args.entities, args.relations, args.rank, args.fixed, device)
    if args.fixed:
        optimizers = [
            torch.optim.SparseAdam(model.entity.parameters(), lr=args.lr),
            torch.optim.Adam(model.relation.parameters(), lr=args.lr),
        ]
    else:
        optimizers = [torch.optim.Adam(model.parameters(), lr=args.lr)]
    heads = torch.randint(0, args.entities, (args.triples,), device=device)
    relations = torch.randint(0, args.relations, (args.triples,), device=device)
    tails = torch.randint(0, args.entities, (args.triples,), device=device)

    for step in range(args.steps):
        rows = torch.randint(0, args.triples, (args.batch_size,), device=device)
        negatives = torch.randint(
            0, args.entities, (args.batch_size, args.negatives), device=device
        )
        positive, negative = model(heads[rows], relations[rows], tails[rows], negatives)
        loss = adversarial_loss(positive, negative)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
