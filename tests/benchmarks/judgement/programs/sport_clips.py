"""Recognize sports in short clips with R(2+1)D: videos are kept as shards of JPEG frames."""

import argparse
import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset
from torchvision.models.video import r2plus1d_18
from torchvision.transforms import v2


def record_video(frames, height, width, seed):
    """A scene that moves to the side, each frame compressed as a camera does."""
    rng = np.random.default_rng(seed)
    scene = Image.fromarray(rng.integers(0, 256, (height, 2 * width, 3), dtype=np.uint8))
    scene = scene.filter(ImageFilter.GaussianBlur(1.5))
    pace = rng.integers(1, 8)
    video = []
    for t in range(frames):
        left = int(pace * t) % width
        buffer = io.BytesIO()
        scene.crop((left, 0, left + width, height)).save(buffer, "JPEG", quality=90)
        video.append(buffer.getvalue())
    return video


def decode(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


class Clips(Dataset):
    """Some frames of a video, evenly spaced from a random start, in one crop."""

    def __init__(self, videos, labels, length, clip_frames, size, lean):
        self.videos, self.labels, self.length = videos, labels, length
        self.clip_frames, self.lean = clip_frames, lean
        self.augment = v2.Compose(
            [
                v2.RandomResizedCrop(size, scale=(0.4, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
            ]
        )

    def __len__(self):
        return self.length

    def choose(self, available):
        stride = max(1, available // (2 * self.clip_frames))
        span = stride * (self.clip_frames - 1) + 1
        start = int(torch.randint(0, available - span + 1, ()))
        return range(start, start + span, stride)

    def load(self, video):
        chosen = self.choose(len(video))
        if self.lean:
            return torch.stack([decode(video[t]) for t in chosen])
        frames = torch.stack([decode(data) for data in video])
        return frames[list(chosen)]

    def __getitem__(self, index):
        video = index % len(self.videos)
        clip = self.augment(self.load(self.videos[video]))
        return clip, self.labels[video]


class Normalize(torch.nn.Module):
    """From uint8 (batch, time, channel, ...) to normalized (batch, channel, time, ...)."""

    def __init__(self):
        super().__init__()
        mean, std = [0.43216, 0.394666, 0.37645], [0.22803, 0.22145, 0.216989]
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, 3, 1, 1, 1))
        self.register_buffer("std", 255 * torch.tensor(std).view(1, 3, 1, 1, 1))

    def forward(self, clips):
        clips = (clips.transpose(1, 2) - self.mean) / self.std
        return clips.contiguous(memory_format=torch.channels_last_3d)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--videos", type=int, default=24)
    parser.add_argument("--frames", type=int, default=48, help="of each video")
    parser.add_argument("--clip-frames", type=int, default=8)
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=340)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--classes", type=int, default=101)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    videos = [record_video(args.frames, args.height, args.width, i) for i in range(args.videos)]
    labels = torch.randint(0, args.classes, (args.videos,)).tolist()
    loader = DataLoader(
        Clips(
            videos,
            labels,
            args.steps * args.batch_size,
            args.clip_frames,
            args.size,
            args.fixed,
        ),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=4 if args.workers else None,
    )

    model = r2plus1d_18(weights=None, num_classes=args.classes)
    model = model.to(device, memory_format=torch.channels_last_3d).train()
    normalize = Normalize().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=device.type == "cuda"
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    for step, (clips, target) in enumerate(loader):
        clips = clips.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(normalize(clips))
        loss = F.cross_entropy(logits.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
