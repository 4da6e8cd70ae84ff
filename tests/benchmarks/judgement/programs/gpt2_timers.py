"""Train a GPT-2 of transformers and report how long each part of a step takes."""

import argparse
import time
from collections import defaultdict
from contextlib import contextmanager

import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Timers:
    def __init__(self, enabled):
        self.enabled, self.seconds = enabled, defaultdict(float)

    @contextmanager
    def __call__(self, name):
        if self.enabled:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        yield
        if self.enabled:
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = GPT2Config(n_layer=12, n_embd=768, n_head=12, vocab_size=16_000, use_cache=False)
    model = GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    ids = torch.randint(0, 16_000, (16, args.batch_size, args.length), device=device)
    timers = Timers(enabled=device.type == "cuda" and not args.fixed)

    for step in range(args.steps):
        batch = ids[step % len(ids)]
        with timers("forward"), torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        with timers("backward"):
            loss.backward()
        with timers("clip"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with timers("optimizer"):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if step % 100 == 0:
            parts = ", ".join(f"{name} {total:.2f} s" for name, total in timers.seconds.items())
            print(f"step {step} loss {loss.item():.4f}; {parts}")


if __name__ == "__main__":
    main()
