"""Fine-tune the image tower of a CLIP model on bird species, against prompts of their names."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
)

START, END = 49406, 49407
TEMPLATES = (
    "a photo of a {}, a type of bird.",
    "a close-up photo of a {}.",
    "a photo of a {} in the wild.",
    "a blurry photo of a {}.",
)


def tokenize(species, templates, length):
    """Stands for the tokenizer of CLIP: a few tokens, then padding up to the context."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.full((species, len(templates), length), END)
    for i in range(species):
        name = torch.randint(1000, 40000, (1 + i % 4,), generator=generator)
        for j, template in enumerate(templates):
            words = torch.tensor([300 + len(word) for word in template.split()])
            tokens = torch.cat((torch.tensor([START]), words, name))[: length - 1]
            prompts[i, j, : len(tokens)] = tokens
    return prompts


class PromptClassifier(nn.Module):
    def __init__(self, vision_config, text_config, prompts):
        super().__init__()
        self.vision = CLIPVisionModelWithProjection(vision_config)
        self.text = CLIPTextModelWithProjection(text_config).eval().requires_grad_(False)
        self.logit_scale = nn.Parameter(torch.tensor(4.6))
        self.register_buffer("prompts", prompts)

    @torch.no_grad()
    def class_weights(self):
        species, templates, length = self.prompts.shape
        text = self.text(input_ids=self.prompts.view(-1, length)).text_embeds
        text = F.normalize(text, dim=-1).view(species, templates, -1).mean(dim=1)
        return F.normalize(text, dim=-1)

    def forward(self, images, weights=None):
        if weights is None:
            weights = self.class_weights()
        features = self.vision(pixel_values=images).image_embeds
        return self.logit_scale.exp() * F.normalize(features, dim=-1) @ weights.T


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--species", type=int, default=200)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--text-width", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    vision_config = CLIPVisionConfig(
        hidden_size=args.width,
        intermediate_size=4 * args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        image_size=args.image_size,
        patch_size=16,
        projection_dim=args.text_width,
    )
    text_config = CLIPTextConfig(
        hidden_size=args.text_width,
        intermediate_size=4 * args.text_width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.text_width // 64,
        projection_dim=args.text_width,
    )
    prompts = tokenize(args.species, TEMPLATES, text_config.max_position_embeddings)
    model = PromptClassifier(vision_config, text_config, prompts).to(device)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=1e-5,
        weight_decay=0.1,
        fused=device.type == "cuda",
    )
    shape = (args.batch_size, 3, args.image_size, args.image_size)
    batches = [
        (
            torch.randn(shape, device=device),
            torch.randint(0, args.species, (args.batch_size,), device=device),
        )
        for _ in range(8)
    ]
    weights = None
    if args.fixed:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            weights = model.class_weights()

    for step in range(args.steps):
        images, labels = batches[step % len(batches)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images, weights)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
