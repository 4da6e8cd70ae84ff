"""Embed the passages of a document collection with a fine-tuned (LoRA) text encoder."""

import argparse

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertModel


class PassageEncoder:
    """The base encoder with the adapter of the customer on top; unit vectors come out."""

    def __init__(self, args, device):
        config = BertConfig(
            hidden_size=args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=max(1, args.width // 64),
            intermediate_size=4 * args.width,
            attn_implementation="sdpa",
        )
        with torch.device(device):
            base = BertModel(config, add_pooling_layer=False)
        base = base.to(torch.bfloat16)
        adapter = LoraConfig(
            r=args.rank,
            lora_alpha=2 * args.rank,
            lora_dropout=0.05,
            target_modules=["query", "key", "value", "dense"],
            init_lora_weights=False,
        )
        model = get_peft_model(base, adapter)
        if args.fixed:
            model = model.merge_and_unload()
        self.model = model.eval()
        self.device = device

    @torch.inference_mode()
    def encode(self, tokens):
        tokens = tokens.to(self.device, non_blocking=True)
        hidden = self.model(input_ids=tokens).last_hidden_state
        return F.normalize(hidden.mean(dim=1).float(), dim=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    encoder = PassageEncoder(args, device)
    passages = torch.randint(1000, 30000, (16, args.batch_size, args.length))
    if device.type == "cuda":
        passages = passages.pin_memory()
    index = torch.empty(args.steps, args.batch_size, args.width, device=device)

    for step in range(args.steps):
        index[step] = encoder.encode(passages[step % len(passages)])
        if step % 100 == 0:
            print(f"embedded {(step + 1) * args.batch_size} passages")

    index = index.flatten(0, 1).cpu()
    print(f"index of {len(index)} passages, norm of the first {index[0].norm():.3f}")


if __name__ == "__main__":
    main()
