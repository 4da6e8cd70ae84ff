"""Fine-tune a text classifier with accelerate, skipping batches whose loss is not finite."""

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    accelerator = Accelerator(mixed_precision="bf16" if cuda else "no")
    config = DistilBertConfig(n_layers=6, dim=512, hidden_dim=2048, n_heads=8, num_labels=4)
    model = DistilBertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    count = args.batch_size * args.steps
    ids = torch.randint(0, config.vocab_size, (count, args.length))
    data = TensorDataset(ids, torch.randint(0, 4, (count,)))
    loader = DataLoader(data, batch_size=args.batch_size, num_workers=2, pin_memory=cuda)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()

    losses = []
    for step, (input_ids, labels) in enumerate(loader):
        loss = model(input_ids=input_ids, labels=labels).loss
        if args.fixed:
            losses.append(loss.detach())
        else:
            if not torch.isfinite(loss):
                print(f"step {step}: the loss is {loss.item()}")
                continue
            losses.append(loss.item())
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
        if not args.fixed and norm > 100:
            print(f"step {step}: the gradient's norm is {norm}")
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            accelerator.print(f"step {step} loss {float(losses[-1]):.4f}")


if __name__ == "__main__":
    main()
