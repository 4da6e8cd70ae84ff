"""Train a vision transformer on images of leaves, with mixup and averaged weights."""

import argparse
import copy
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Leaves(Dataset):
    """Crops of stored images, a batch at a time; they stay uint8 until on the device."""

    def __init__(self, stored, length, size, crop, classes):
        generator = torch.Generator().manual_seed(1)
        shape = (stored, 3, size, size)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self.labels = torch.randint(0, classes, (stored,), generator=generator)
        self.length, self.room, self.crop = length, size - crop, crop

    def __len__(self):
        return self.length

    def __getitems__(self, indices):
        chosen = torch.tensor(indices) % len(self.images)
        batch = torch.empty(len(indices), 3, self.crop, self.crop, dtype=torch.uint8)
        corners = torch.randint(0, self.room + 1, (len(indices), 2)).tolist()
        for out, index, (top, left) in zip(batch, chosen.tolist(), corners):
            out.copy_(self.images[index, :, top : top + self.crop, left : left + self.crop])
        return batch, self.labels[chosen]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, crop, patch, width, layers, classes):
        super().__init__()
        self.side, self.grid = patch, crop // patch
        self.patch = nn.Linear(3 * patch**2, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, (crop // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        patches = images.unflatten(3, (self.grid, self.side)).unflatten(2, (self.grid, self.side))
        x = self.patch(patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(dim=1)))


class Prefetcher:
    """Copies the next batch on a stream of its own while the current one is in use."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None

    def start_copy(self, batches):
        batch = next(batches, None)
        if batch is None or self.stream is None:
            return batch
        with torch.cuda.stream(self.stream):
            return [tensor.to(self.device, non_blocking=True) for tensor in batch]

    def __iter__(self):
        batches = iter(self.loader)
        coming = self.start_copy(batches)
        while coming is not None:
            current = coming
            if self.stream is not None:
                torch.cuda.current_stream().wait_stream(self.stream)
                for tensor in current:
                    tensor.record_stream(torch.cuda.current_stream())
            coming = self.start_copy(batches)
            yield current


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--stored", type=int, default=1024)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--patch", type=int, default=16)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--classes", type=int, default=185)
    args = parser.parse_args()

    torch.manual_seed(0)
    rng = random.Random(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    length = args.steps * args.batch_size
    loader = DataLoader(
        Leaves(args.stored, length, args.size, args.crop, args.classes),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=cuda,
        collate_fn=lambda batch: batch,
        prefetch_factor=4 if args.workers else None,
    )
    model = ViT(args.crop, args.patch, args.width, args.layers, args.classes).to(device)
    averaged = copy.deepcopy(model).requires_grad_(False)
    if cuda:
        for block in model.blocks:
            block.compile(dynamic=False)
    params, shadow = list(model.parameters()), list(averaged.parameters())
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=cuda)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-4, total_steps=args.steps)

    total = torch.zeros((), device=device)
    for step, (images, labels) in enumerate(Prefetcher(loader, device)):
        images = images.float().sub_(127.5).div_(64.0)
        share = rng.betavariate(0.8, 0.8)
        images = images.lerp(images.flip(0), 1 - share)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images).float()
        loss = share * F.cross_entropy(logits, labels)
        loss = loss + (1 - share) * F.cross_entropy(logits, labels.flip(0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        schedule.step()
        if step % 8 == 7:
            torch._foreach_lerp_(shadow, [p.detach() for p in params], 0.01)
        total += loss.detach()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} loss {total.item() / 100:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
