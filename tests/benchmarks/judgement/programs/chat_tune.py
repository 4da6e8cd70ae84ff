"""Tune a GPT-2 to follow instructions, with a few tokens of its own for the roles of a chat."""

import argparse

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

ROLE_TOKENS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]


def build_model(args, device):
    config = GPT2Config(
        vocab_size=args.vocab,
        n_positions=args.length,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.width // 64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=args.vocab - 1,
        eos_token_id=args.vocab - 1,
    )
    model = GPT2LMHeadModel(config)
    vocab = args.vocab + len(ROLE_TOKENS)
    multiple = 64 if args.fixed else None
    model.resize_token_embeddings(vocab, pad_to_multiple_of=multiple, mean_resizing=False)
    return model.to(device)


def make_chats(count, length, vocab, turns, generator):
    """Packed chats: turns of the user, which are not learned, and of the assistant."""
    system, user, assistant, end = range(vocab, vocab + len(ROLE_TOKENS))
    ids = torch.randint(0, vocab - 1, (count, length), generator=generator)
    labels = torch.full_like(ids, -100)
    span = length // (2 * turns)
    ids[:, 0] = system
    for turn in range(turns):
        asks = 2 * turn * span
        answers = asks + span
        ids[:, asks + 1] = user
        ids[:, answers] = assistant
        ids[:, answers + span - 1] = end
        labels[:, answers + 1 : answers + span] = ids[:, answers + 1 : answers + span]
    return ids, labels


def decay_groups(model, weight_decay):
    params = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in params if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(args, device).train()
    optimizer = torch.optim.AdamW(
        decay_groups(model, 0.01), lr=args.lr, betas=(0.9, 0.95), fused=device.type == "cuda"
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, args.steps // 20, args.steps)

    generator = torch.Generator().manual_seed(1)
    chats = 32 * args.batch_size
    ids, labels = make_chats(chats, args.length, args.vocab, args.turns, generator)
    if device.type == "cuda":
        ids, labels = ids.pin_memory(), labels.pin_memory()

    running = torch.zeros((), device=device)
    for step in range(args.steps):
        start = step * args.batch_size % chats
        batch = slice(start, start + args.batch_size)
        inputs = ids[batch].to(device, non_blocking=True)
        targets = labels[batch].to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=inputs, labels=targets).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running.lerp_(loss.detach(), 0.05 if step else 1.0)
        if step % 100 == 0:
            print(f"step {step} loss {running.item():.4f}")


if __name__ == "__main__":
    main()
