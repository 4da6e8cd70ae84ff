"""Pretrain a causal language model (Llama) on windows of a genome cut into 4-mers."""

import argparse

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = LlamaConfig(
        vocab_size=264,
        hidden_size=args.width,
        intermediate_size=args.width * 8 // 3 // 64 * 64,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        num_key_value_heads=args.width // 64,
        max_position_embeddings=args.length,
        attn_implementation="sdpa",
        use_cache=False,
    )
    with device:
        model = LlamaForCausalLM(config)
    model.to(torch.bfloat16).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), fused=device.type == "cuda"
    )
    scheduler = get_cosine_schedule_with_warmup(optimizer, 100, max(args.steps, 1000))
    genome = torch.randint(8, 264, (4_000_000,), device=device)
    window = torch.arange(args.length, device=device)

    for step in range(args.steps):
        starts = torch.randint(0, len(genome) - args.length, (args.batch_size, 1), device=device)
        tokens = genome[starts + window]
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
