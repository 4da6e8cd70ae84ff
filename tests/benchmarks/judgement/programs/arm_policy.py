"""Clone the behaviour of a two-armed robot: a transformer predicts chunks of actions."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads, dropout, fixed):
        super().__init__()
        self.heads, self.dropout, self.fixed = heads, dropout, fixed
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.out(x.transpose(1, 2).reshape(batch, length, width))

    def limit(self, x):
        """Keeps a bad camera frame from filling the whole batch with infinities."""
        if self.fixed:
            return torch.nan_to_num(x, nan=0.0, posinf=1e4, neginf=-1e4)
        if not torch.isfinite(x).all():
            x = torch.nan_to_num(x, nan=0.0, posinf=1e4, neginf=-1e4)
        return x

    def forward(self, x):
        x = self.limit(x + F.dropout(self.attend(self.norm1(x)), self.dropout, self.training))
        x = x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)
        return self.limit(x)


class ArmPolicy(nn.Module):
    def __init__(self, width, layers, heads, cameras, patches, joints, chunk, fixed, dropout=0.1):
        super().__init__()
        self.chunk = chunk
        self.visual = nn.Linear(width, width)
        self.proprio = nn.Linear(joints, width)
        self.queries = nn.Parameter(0.02 * torch.randn(1, chunk, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, cameras * patches + 1, width))
        self.layers = nn.ModuleList(Layer(width, heads, dropout, fixed) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.actions = nn.Linear(width, joints)

    def forward(self, frames, joints):
        seen = (
            torch.cat((self.visual(frames), self.proprio(joints).unsqueeze(1)), dim=1) + self.places
        )
        x = torch.cat((seen, self.queries.expand(len(seen), -1, -1)), dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.actions(self.norm(x[:, -self.chunk :]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--cameras", type=int, default=3)
    parser.add_argument("--patches", type=int, default=49)
    parser.add_argument("--joints", type=int, default=14)
    parser.add_argument("--chunk", type=int, default=50)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    policy = ArmPolicy(
        args.width,
        args.layers,
        args.heads,
        args.cameras,
        args.patches,
        args.joints,
        args.chunk,
        args.fixed,
    ).to(device)
    for layer in policy.layers:
        layer.compile()
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=1e-4, weight_decay=1e-4, fused=device.type == "cuda"
    )
    frames = torch.randn(8, args.batch_size, args.cameras * args.patches, args.width, device=device)
    joints = torch.randn(8, args.batch_size, args.joints, device=device)
    demonstrated = torch.randn(8, args.batch_size, args.chunk, args.joints, device=device)

    for step in range(args.steps):
        index = step % len(frames)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            actions = policy(frames[index], joints[index])
        loss = F.l1_loss(actions.float(), demonstrated[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
