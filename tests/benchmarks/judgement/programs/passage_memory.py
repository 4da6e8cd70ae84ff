"""Train a dense retriever: the hardest negatives come from a memory of former passages."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel


class PassageMemory:
    """A ring of the passages of the last batches, with the documents they are from."""

    def __init__(self, size, width, device):
        self.vectors = F.normalize(torch.randn(size, width, device=device), dim=1)
        self.documents = torch.full((size,), -1, device=device)
        self.next = 0

    def push(self, vectors, documents):
        end = self.next + len(vectors)
        self.vectors[self.next : end] = vectors
        self.documents[self.next : end] = documents
        self.next = end % len(self.vectors)

    @torch.no_grad()
    def hardest(self, queries, documents, count, fixed):
        scores = queries @ self.vectors.t()
        same = documents.unsqueeze(1) == self.documents
        scores = scores.masked_fill_(same, -1)
        if fixed:
            nearest = scores.topk(count, dim=1).indices
        else:
            nearest = scores.argsort(dim=1, descending=True)[:, :count]
        return self.vectors[nearest]


class Retriever(nn.Module):
    def __init__(self, width, layers, length):
        super().__init__()
        config = BertConfig(
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            max_position_embeddings=length,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.log_scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, ids):
        hidden = self.bert(input_ids=ids).last_hidden_state
        return F.normalize(hidden.float().mean(dim=1), dim=1)

    def loss(self, queries, passages, negatives):
        inside = queries @ passages.t()
        outside = torch.einsum("qd,qnd->qn", queries, negatives)
        logits = torch.cat((inside, outside), dim=1) * self.log_scale.exp()
        return F.cross_entropy(logits, torch.arange(len(queries), device=queries.device))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--memory", type=int, default=131_072)
    parser.add_argument("--negatives", type=int, default=64)
    parser.add_argument("--passage", type=int, default=96)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = Retriever(args.width, args.layers, args.passage).to(device).train()
    memory = PassageMemory(args.memory, args.width, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    queries = torch.randint(1000, 30_000, (8, args.batch_size, 24), device=device)
    passages = torch.randint(1000, 30_000, (8, args.batch_size, args.passage), device=device)
    documents = torch.randint(0, 1_000_000, (8, args.batch_size), device=device)

    for step in range(args.steps):
        which = step % 8
        with torch.autocast(device.type, dtype=torch.bfloat16):
            query, passage = model(queries[which]), model(passages[which])
        negatives = memory.hardest(query, documents[which], args.negatives, args.fixed)
        loss = model.loss(query, passage, negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.push(passage.detach(), documents[which])
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
