"""Embed the frames of videos with a ViT: the next frames are copied while these are embedded."""

import argparse

import torch
import torch.nn.functional as F
from transformers import ViTConfig, ViTModel


class Prefetcher:
    """Copies each batch on a stream of its own, one batch ahead."""

    def __init__(self, batches, device):
        self.batches, self.device = batches, device
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None

    def copy(self, batch):
        if self.stream is None:
            return batch
        with torch.cuda.stream(self.stream):
            return batch.to(self.device, non_blocking=True)

    def __iter__(self):
        following = None
        for batch in self.batches:
            current, following = following, self.copy(batch)
            if current is not None:
                yield current
            self.wait(following)
        yield following

    def wait(self, batch):
        if self.stream is not None:
            stream = torch.cuda.current_stream()
            stream.wait_stream(self.stream)
            batch.record_stream(stream)


def decoded(count, batch_size, size, cuda):
    """Frames as a video decoder leaves them: bytes in a few pinned buffers."""
    buffers = torch.randint(0, 256, (4, batch_size, 3, size, size), dtype=torch.uint8)
    buffers = buffers.pin_memory() if cuda else buffers
    for number in range(count):
        yield buffers[number % 4]


def embed(model, frames, out):
    images = frames.to(out.dtype).sub_(127.5).div_(127.5)
    hidden = model(pixel_values=images).last_hidden_state
    out.copy_(F.normalize(hidden[:, 0], dim=-1))


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.manual_seed(0)
    dtype = torch.bfloat16 if cuda else torch.float32
    config = ViTConfig(image_size=args.size, num_hidden_layers=args.layers)
    model = ViTModel(config, add_pooling_layer=False).to(device, dtype).eval()
    count = args.batches * args.batch_size
    index = torch.empty(count, config.hidden_size, device=device, dtype=dtype)

    frames = decoded(args.batches, args.batch_size, args.size, cuda)
    parts = index.split(args.batch_size)
    for number, batch in enumerate(Prefetcher(frames, device)):
        embed(model, batch, parts[number])
        if number % 100 == 0:
            print(f"{number * args.batch_size} frames are on their way")
    nearest = (index[:4] @ index.t()).topk(3).indices
    print(nearest.tolist())


if __name__ == "__main__":
    main()
