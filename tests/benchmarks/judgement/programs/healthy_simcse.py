"""Train sentence embeddings with dropout as the only augmentation (SimCSE), in large batches."""

import argparse

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertModel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=args.layers)
    model = BertModel(config, add_pooling_layer=False).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=device.type == "cuda")
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=100)
    shape = (8, args.batch_size, args.length)
    sentences = torch.randint(0, config.vocab_size, shape, device=device)
    wanted = torch.arange(args.batch_size, device=device)
    total = torch.zeros((), device=device)

    for step in range(args.steps):
        ids = sentences[step % 8].repeat(2, 1)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            hidden = model(input_ids=ids).last_hidden_state
        first, second = F.normalize(hidden[:, 0].float(), dim=-1).chunk(2)
        loss = F.cross_entropy(first @ second.t() / 0.05, wanted)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        total += loss.detach()
        if (step + 1) % 100 == 0:
            print(f"step {step} mean loss {total.item() / 100:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
