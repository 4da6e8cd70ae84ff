"""Answer support questions: embed them with a MiniLM and find the nearest passages."""

import argparse

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertModel


class Embedder:
    """Mean of the last hidden states over the tokens of a question."""

    def __init__(self, model, device):
        self.model, self.device = model, device

    def encode(self, ids, mask):
        ids = ids.to(self.device, non_blocking=True)
        mask = mask.to(self.device, non_blocking=True)
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def cos_sim(a, b):
    """Cosine of each row of a with each row of b."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T


def dot_score(a, b):
    return a @ b.T


class Index:
    def __init__(self, passages, fixed):
        self.passages = F.normalize(passages, dim=-1) if fixed else passages
        self.fixed = fixed

    def nearest(self, questions, count):
        if self.fixed:
            scores = dot_score(F.normalize(questions, dim=-1), self.passages)
        else:
            scores = cos_sim(questions, self.passages)
        return scores.topk(count, dim=-1)


@torch.inference_mode()
def search(embedder, index, ids, mask, count):
    """For each question the numbers and scores of its passages."""
    questions = embedder.encode(ids, mask)
    scores, passages = index.nearest(questions, count)
    found = torch.stack((scores.double(), passages.double())).cpu()
    return [
        [(int(passage), score) for score, passage in zip(*row)]
        for row in zip(found[0].tolist(), found[1].tolist())
    ]


def make_requests(number, batch, length, vocab, pin):
    """Batches of tokenized questions, padded to the longest of each batch."""
    requests = []
    for _ in range(number):
        lengths = torch.randint(length // 4, length + 1, (batch, 1))
        mask = (torch.arange(int(lengths.max())) < lengths).long()
        ids = torch.randint(1, vocab, mask.shape) * mask
        requests.append((ids.pin_memory(), mask.pin_memory()) if pin else (ids, mask))
    return requests


def make_passages(count, width, dtype, device):
    """Embeddings of the passages as the indexing job stored them."""
    passages = torch.empty(count, width, dtype=dtype, device=device)
    for part in passages.split(500_000):
        part.normal_()
        part.mul_(0.5 + torch.rand(len(part), 1, dtype=dtype, device=device))
    return passages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--passages", type=int, default=4_000_000)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocab", type=int, default=30522)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    config = BertConfig(
        vocab_size=args.vocab,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 32,
        intermediate_size=4 * args.width,
    )
    model = BertModel(config, add_pooling_layer=False).to(device, dtype).eval()
    embedder = Embedder(model, device)
    index = Index(make_passages(args.passages, args.width, dtype, device), args.fixed)
    requests = make_requests(32, args.batch_size, args.length, args.vocab, device.type == "cuda")

    answered, best = 0, 0.0
    for step in range(args.steps):
        ids, mask = requests[step % len(requests)]
        results = search(embedder, index, ids, mask, args.top)
        answered += len(results)
        best += sum(result[0][1] for result in results)
        if step % 100 == 0:
            print(f"step {step} answered {answered}, mean of the best scores {best / answered:.4f}")


if __name__ == "__main__":
    main()
