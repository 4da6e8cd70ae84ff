"""Grade student essays with RoBERTa, lower layers learning slower than upper ones."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import RobertaConfig, RobertaModel, get_cosine_schedule_with_warmup


class EssayGrader(nn.Module):
    """Mean of the last hidden states, and six analytic scores (cohesion, syntax, ...)."""

    def __init__(self, config, scores=6):
        super().__init__()
        self.backbone = RobertaModel(config, add_pooling_layer=False)
        self.head = nn.Linear(config.hidden_size, scores)

    def forward(self, input_ids):
        hidden = self.backbone(input_ids=input_ids).last_hidden_state
        return self.head(hidden.mean(dim=1))


def layer_of(name, layers):
    if name.startswith("backbone.embeddings"):
        return 0
    if name.startswith("backbone.encoder.layer."):
        return int(name.split(".")[3]) + 1
    return layers + 1


def optimizer_groups(model, layers, lr, decay, weight_decay):
    """Layer-wise learning rate decay; no weight decay for biases and norms."""
    groups = []
    for name, param in model.named_parameters():
        groups.append(
            {
                "params": [param],
                "lr": lr * decay ** (layers + 1 - layer_of(name, layers)),
                "weight_decay": 0.0 if param.ndim < 2 else weight_decay,
            }
        )
    return groups


def optimizer_groups_by_layer(model, layers, lr, decay, weight_decay):
    groups = {}
    for name, param in model.named_parameters():
        layer, plain = layer_of(name, layers), param.ndim < 2
        group = groups.setdefault(
            (layer, plain),
            {
                "params": [],
                "lr": lr * decay ** (layers + 1 - layer),
                "weight_decay": 0.0 if plain else weight_decay,
            },
        )
        group["params"].append(param)
    return list(groups.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocab", type=int, default=50265)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--layer-decay", type=float, default=0.9)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = RobertaConfig(
        vocab_size=args.vocab,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        intermediate_size=4 * args.width,
        max_position_embeddings=args.length + 2,
    )
    with device:
        model = EssayGrader(config)
    model.train()

    make_groups = optimizer_groups_by_layer if args.fixed else optimizer_groups
    groups = make_groups(model, args.layers, args.lr, args.layer_decay, 0.01)
    optimizer = torch.optim.AdamW(groups, lr=args.lr, eps=1e-6)
    scheduler = get_cosine_schedule_with_warmup(optimizer, args.steps // 10, args.steps)

    essays = torch.randint(4, args.vocab, (64 * args.batch_size, args.length), device=device)
    grades = 1 + 4 * torch.rand(len(essays), 6, device=device)

    for step in range(args.steps):
        start = step % 64 * args.batch_size
        ids, target = (
            essays[start : start + args.batch_size],
            grades[start : start + args.batch_size],
        )
        with torch.autocast(device.type, dtype=torch.bfloat16):
            predicted = model(ids)
        loss = F.smooth_l1_loss(predicted.float(), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
