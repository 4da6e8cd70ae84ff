"""Train a FastSpeech 2 acoustic model: phonemes to mel spectrograms, with aligned durations."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class FFTBlock(nn.Module):
    """Self-attention, then two convolutions over time."""

    def __init__(self, width, heads, inner, kernel=9):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.conv1 = nn.Conv1d(width, inner, kernel, padding=kernel // 2)
        self.conv2 = nn.Conv1d(inner, width, 1)

    def forward(self, x, valid):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=valid[:, None, None])
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.conv1(self.norm2(x).transpose(1, 2))
        return x + self.conv2(F.relu(y)).transpose(1, 2)


class Predictor(nn.Module):
    """One number per phoneme: log duration, or pitch."""

    def __init__(self, width, kernel=3):
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.norm(x)).squeeze(-1)


def regulate(states, durations, length):
    """Repeat the state of each phoneme for as many frames as it lasts."""
    utterances = []
    for sequence, counts in zip(states, durations):
        frames = []
        for state, count in zip(sequence, counts):
            frames.append(state.expand(max(int(count.item()), 0), -1))
        utterances.append(torch.cat(frames))
    padded = pad_sequence(utterances, batch_first=True)
    return F.pad(padded, (0, 0, 0, length - padded.shape[1]))


def regulate_gather(states, durations, length):
    ends = durations.cumsum(1)
    times = torch.arange(length, device=states.device).expand(len(states), -1).contiguous()
    index = torch.searchsorted(ends, times, right=True).clamp(max=states.shape[1] - 1)
    frames = states.gather(1, index.unsqueeze(-1).expand(-1, -1, states.shape[2]))
    return frames * (times < ends[:, -1:]).unsqueeze(-1)


class FastSpeech(nn.Module):
    def __init__(self, phonemes, width, heads, layers, mels, longest):
        super().__init__()
        self.embed = nn.Embedding(phonemes, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        self.encoder = nn.ModuleList(FFTBlock(width, heads, 4 * width) for _ in range(layers))
        self.decoder = nn.ModuleList(FFTBlock(width, heads, 4 * width) for _ in range(layers))
        self.duration, self.pitch = Predictor(width), Predictor(width)
        self.pitch_embed = nn.Linear(1, width)
        self.out = nn.Linear(width, mels)

    def forward(self, phonemes, durations, pitch, length, regulator):
        valid = phonemes > 0
        x = self.embed(phonemes) + self.places[: phonemes.shape[1]]
        for block in self.encoder:
            x = block(x, valid)
        log_durations, pitches = self.duration(x), self.pitch(x)
        x = x + self.pitch_embed(pitch.unsqueeze(-1))
        frames = regulator(x, durations, length)
        heard = torch.arange(length, device=x.device) < durations.sum(1, keepdim=True)
        frames = frames + self.places[:length]
        for block in self.decoder:
            frames = block(frames, heard)
        return self.out(frames), log_durations, pitches, valid, heard


def make_batch(size, longest, phonemes, mels, pin):
    """A padded batch as the loader would leave it, with the number of its frames."""
    lengths = torch.randint(3 * longest // 4, longest + 1, (size, 1))
    valid = torch.arange(longest) < lengths
    durations = torch.randint(2, 12, (size, longest)) * valid
    frames = -(-int(durations.sum(1).max()) // 32) * 32
    batch = {
        "phonemes": torch.randint(1, phonemes, (size, longest)) * valid,
        "durations": durations,
        "pitch": torch.randn(size, longest) * valid,
        "mel": torch.randn(size, frames, mels),
    }
    return {k: v.pin_memory() if pin else v for k, v in batch.items()}, frames


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--longest", type=int, default=64)
    parser.add_argument("--phonemes", type=int, default=84)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--mels", type=int, default=80)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    model = FastSpeech(
        args.phonemes, args.width, args.heads, args.layers, args.mels, 12 * args.longest + 32
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.98), fused=cuda)
    sizes = (args.batch_size, args.longest, args.phonemes, args.mels)
    batches = [make_batch(*sizes, cuda) for _ in range(16)]
    regulator = regulate_gather if args.fixed else regulate

    for step in range(args.steps):
        host, length = batches[step % len(batches)]
        batch = {name: value.to(device, non_blocking=True) for name, value in host.items()}
        with torch.autocast(device.type, dtype=torch.bfloat16):
            mel, log_durations, pitches, valid, heard = model(
                batch["phonemes"], batch["durations"], batch["pitch"], length, regulator
            )
        frames, phonemes = heard.sum(), valid.sum()
        off = (mel.float() - batch["mel"]).abs().mean(-1)
        mel_loss = (off * heard).sum() / frames
        wanted = torch.log1p(batch["durations"].float())
        duration_loss = ((log_durations.float() - wanted).square() * valid).sum() / phonemes
        pitch_loss = ((pitches.float() - batch["pitch"]).square() * valid).sum() / phonemes
        loss = mel_loss + duration_loss + pitch_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} mel {mel_loss.item():.4f}")


if __name__ == "__main__":
    main()
