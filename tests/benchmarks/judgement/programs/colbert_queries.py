"""Search passages with late interaction (ColBERT): batches of queries against an index."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel

MASK = 103


class ColBERT(nn.Module):
    def __init__(self, config, size=128):
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.reduce = nn.Linear(config.hidden_size, size, bias=False)

    def forward(self, ids):
        # queries are filled up with [MASK], which the model attends to: no mask is needed
        return self.reduce(self.bert(input_ids=ids).last_hidden_state)


class Index:
    def __init__(self, passages, length, device):
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        vectors = torch.randn(passages, length, 128, device=device)
        self.vectors = F.normalize(vectors, dim=-1).to(dtype).flatten(0, 1)
        self.length = length

    def best(self, queries, count):
        batch, tokens, _ = queries.shape
        similar = queries.to(self.vectors.dtype).flatten(0, 1) @ self.vectors.t()
        per_token = similar.view(batch, tokens, -1, self.length).amax(dim=-1)
        return per_token.sum(dim=1, dtype=torch.float32).topk(count, dim=1)


class Searcher:
    def __init__(self, model, index, fixed):
        self.device = index.vectors.device
        self.index, self.fixed = index, fixed
        self.model = model.to(torch.bfloat16) if fixed and self.device.type == "cuda" else model

    def embed(self, ids):
        if self.fixed:
            vectors = self.model(ids)
        else:
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                vectors = self.model(ids)
        return F.normalize(vectors.float(), dim=-1)

    def search(self, ids, count=10):
        return self.index.best(self.embed(ids), count).indices


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=1024,
        num_hidden_layers=args.layers,
        num_attention_heads=16,
        intermediate_size=4096,
    )
    model = ColBERT(config).to(device).eval()
    searcher = Searcher(model, Index(args.passages, 128, device), args.fixed)
    queries = torch.randint(1000, config.vocab_size, (16, args.batch_size, 32), device=device)
    queries[:, :, 20:] = MASK

    found = []
    for number in range(args.batches):
        found.append(searcher.search(queries[number % 16]))
    print(torch.cat(found)[:4].tolist())


if __name__ == "__main__":
    main()
