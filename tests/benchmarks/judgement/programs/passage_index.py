"""Embed the passages of a help centre for semantic search."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

PAD, CLS, SEP = 0, 101, 102


class Passages(Dataset):
    """Passages that were tokenized before; most are a paragraph, a few are long."""

    def __init__(self, count, vocabulary, max_length):
        generator = torch.Generator().manual_seed(0)
        lengths = torch.empty(count).log_normal_(3.9, 0.6, generator=generator)
        self.lengths = lengths.long().clamp(6, max_length - 2).tolist()
        self.tokens = torch.randint(1000, vocabulary, (max_length * 64,), generator=generator)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        start = index * 37 % (len(self.tokens) - self.lengths[index])
        body = self.tokens[start : start + self.lengths[index]].tolist()
        return index, [CLS, *body, SEP]


class Collator:
    def __init__(self, max_length, padding):
        self.max_length = max_length
        self.padding = padding

    def __call__(self, rows):
        ids = [torch.tensor(tokens[: self.max_length]) for _, tokens in rows]
        length = self.max_length
        if self.padding == "longest":
            length = -(-max(len(row) for row in ids) // 8) * 8
        input_ids = torch.full((len(ids), length), PAD)
        attention_mask = torch.zeros(len(ids), length, dtype=torch.long)
        for i, row in enumerate(ids):
            input_ids[i, : len(row)] = row
            attention_mask[i, : len(row)] = 1
        return torch.tensor([index for index, _ in rows]), input_ids, attention_mask


def embed(model, input_ids, attention_mask):
    hidden = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
    pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.nn.functional.normalize(pooled.float(), dim=-1)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=args.vocabulary,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        intermediate_size=4 * args.width,
        max_position_embeddings=args.max_length,
    )
    model = BertModel(config, add_pooling_layer=False)
    model = model.to(device, torch.bfloat16).eval()

    passages = Passages(args.steps * args.batch_size, args.vocabulary, args.max_length)
    loader = DataLoader(
        passages,
        batch_size=args.batch_size,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        collate_fn=Collator(args.max_length, "longest" if args.fixed else "max_length"),
    )
    table = torch.empty(len(passages), args.width, device=device)

    for step, (index, input_ids, attention_mask) in enumerate(loader):
        index = index.to(device, non_blocking=True)
        input_ids = input_ids.to(device, non_blocking=True)
        attention_mask = attention_mask.to(device, non_blocking=True)
        table[index] = embed(model, input_ids, attention_mask)
        if step % 50 == 0:
            print(f"batch {step}: {(step + 1) * args.batch_size} passages")

    similarity = table[:4] @ table.T
    print("neighbours of the first passages", similarity.topk(3, dim=1).indices.tolist())


if __name__ == "__main__":
    main()
