"""Train a Llama of transformers in bfloat16 with batches that fill the GPU."""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16_000,
        hidden_size=1536,
        intermediate_size=4096,
        num_hidden_layers=6,
        num_attention_heads=12,
        num_key_value_heads=4,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    ids = torch.randint(0, 16_000, (8, args.batch_size, args.length), device=device)
    for step in range(args.steps):
        batch = ids[step % len(ids)]
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
