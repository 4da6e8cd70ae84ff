"""Fine-tune a small vision transformer on patches of lymph node slides (tumour or not)."""

import argparse
import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed


class SlidePatches(Dataset):
    """96 x 96 patches cut from whole slides; a patch is positive when its middle has tumour."""

    def __init__(self, length, size, pool=2048):
        generator = torch.Generator().manual_seed(0)
        self.length = length
        self.images = torch.randint(
            0, 256, (pool, 3, size, size), dtype=torch.uint8, generator=generator
        )
        self.labels = torch.randint(0, 2, (pool,), generator=generator).tolist()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        index = index % len(self.images)
        pixels = self.images[index].float().div_(127.5).sub_(1)
        return {"pixel_values": pixels, "labels": self.labels[index]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    set_seed(0)
    cuda = torch.cuda.is_available()
    torch.set_float32_matmul_precision("high")
    config = ViTConfig(
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=max(1, args.width // 64),
        intermediate_size=4 * args.width,
        image_size=args.size,
        patch_size=8,
        num_labels=2,
        attn_implementation="sdpa",
    )
    model = ViTForImageClassification(config)

    batch_size, accumulation = args.batch_size, args.accumulation
    if args.fixed:
        batch_size, accumulation = args.batch_size * args.accumulation, 1
    training_args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), "pathology_vit"),
        max_steps=args.steps,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=min(50, args.steps // 2),
        optim="adamw_torch_fused",
        bf16=cuda,
        use_cpu=not cuda,
        dataloader_num_workers=args.workers,
        dataloader_persistent_workers=args.workers > 0,
        accelerator_config={"non_blocking": True},
        logging_steps=100,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model, args=training_args, train_dataset=SlidePatches(262144, args.size)
    )
    trainer.train()


if __name__ == "__main__":
    main()
