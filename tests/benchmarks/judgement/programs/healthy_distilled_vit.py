"""Distil a large ViT into a small one, with an average of the student's weights for tests."""

import argparse
import copy

import torch
import torch.nn.functional as F
from transformers import ViTConfig, ViTForImageClassification


def make_vit(width, layers, size, patch):
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        image_size=size,
        patch_size=patch,
        num_labels=1000,
    )
    return ViTForImageClassification(config)


class Average:
    """Exponential moving average of all weights, a few kernels for the whole model."""

    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.source = [p.detach() for p in model.parameters()]
        self.target = list(self.model.parameters())

    def update(self):
        torch._foreach_lerp_(self.target, self.source, 1 - self.decay)


@torch.no_grad()
def augment(images, dtype):
    """Flips, brightness, and the usual range of values, on the device."""
    flip = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    images = torch.where(flip, images.flip(3), images).to(dtype)
    light = 0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, device=images.device, dtype=dtype)
    return images * light / 127.5 - 1


def distillation_loss(student, teacher, labels, temperature):
    soft = F.kl_div(
        F.log_softmax(student / temperature, dim=1),
        F.log_softmax(teacher / temperature, dim=1),
        log_target=True,
        reduction="batchmean",
    )
    return 0.5 * F.cross_entropy(student, labels) + 0.5 * temperature**2 * soft


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=192)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--patch", type=int, default=16)
    parser.add_argument("--teacher", type=int, default=768, help="width")
    parser.add_argument("--student", type=int, default=384, help="width")
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.manual_seed(0)
    dtype = torch.bfloat16 if cuda else torch.float32
    teacher = make_vit(args.teacher, args.layers, args.size, args.patch)
    teacher = teacher.to(device, dtype).eval().requires_grad_(False)
    student = make_vit(args.student, args.layers, args.size, args.patch).to(device).train()
    average = Average(student, decay=0.999)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.05, fused=cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    shape = (4, args.batch_size, 3, args.size, args.size)
    decoded = torch.randint(0, 256, shape, dtype=torch.uint8)
    classes = torch.randint(0, 1000, (4, args.batch_size))
    if cuda:
        decoded, classes = decoded.pin_memory(), classes.pin_memory()

    for step in range(args.steps):
        images = augment(decoded[step % 4].to(device, non_blocking=True), dtype)
        labels = classes[step % 4].to(device, non_blocking=True)
        with torch.no_grad():
            wanted = teacher(pixel_values=images).logits
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = student(pixel_values=images).logits
        loss = distillation_loss(logits.float(), wanted.float(), labels, temperature=2.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
