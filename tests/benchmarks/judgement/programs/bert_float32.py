"""Train a BERT classifier of transformers in single precision."""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    if args.fixed:
        torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=8,
        hidden_size=768,
        num_attention_heads=12,
        num_labels=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=device.type == "cuda")
    ids = torch.randint(0, config.vocab_size, (8, args.batch_size, args.length), device=device)
    labels = torch.randint(0, 4, (8, args.batch_size), device=device)

    for step in range(args.steps):
        which = step % len(ids)
        loss = model(input_ids=ids[which], labels=labels[which]).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
