"""Tune a Llama of transformers on packed instructions, with accumulated gradients."""

import argparse
import random

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

END = 2


def pack(examples, length):
    """Joins instructions and answers to full rows; only the answers are targets."""
    ids, labels = [], []
    for prompt, answer in examples:
        ids += [*prompt, *answer, END]
        labels += [-100] * len(prompt) + [*answer, END]
    rows = len(ids) // length
    ids = torch.tensor(ids[: rows * length]).view(rows, length)
    labels = torch.tensor(labels[: rows * length]).view(rows, length)
    return ids, labels


def make_examples(count):
    def tokens(low, high):
        return random.choices(range(3, 32_000), k=random.randint(low, high))

    return [(tokens(20, 200), tokens(50, 600)) for _ in range(count)]


def answer_loss(model, ids, labels):
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=6, help="of a micro batch")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=10)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    random.seed(0)
    ids, labels = pack(make_examples(args.examples), args.length)
    ids, labels = ids.to(device), labels.to(device)
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        num_key_value_heads=args.width // 64,
    )
    model = LlamaForCausalLM(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=device.type == "cuda")
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, args.steps)

    total = torch.zeros((), device=device)
    start = 0
    for step in range(args.steps):
        for _ in range(args.accumulate):
            if start + args.rows > len(ids):
                start = 0
            rows = slice(start, start + args.rows)
            start += args.rows
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = answer_loss(model, ids[rows], labels[rows]) / args.accumulate
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            print(f"step {step} mean loss {total.item() / 50:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
