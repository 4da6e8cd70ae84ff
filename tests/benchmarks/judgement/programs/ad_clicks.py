"""Predict clicks on adverts with DLRM, in Lightning."""

import argparse
import itertools

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


class Impressions:
    """Impressions replayed from a log that sits on the device."""

    def __init__(self, steps, batch_size, rows, tables, dense, device):
        self.steps = steps
        self.batches = []
        weights = torch.randn(dense, device=device)
        for _ in range(6):
            x = torch.randn(batch_size, dense, device=device)
            ids = torch.randint(0, rows, (batch_size, tables), device=device)
            clicks = torch.rand(batch_size, device=device) < torch.sigmoid(x @ weights - 1)
            self.batches.append((x, ids, clicks.float()))

    def __len__(self):
        return self.steps

    def __iter__(self):
        for step in range(self.steps):
            yield self.batches[step % len(self.batches)]


def mlp(*sizes):
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class ClickModel(L.LightningModule):
    def __init__(self, tables, rows, dense, width, every, fixed):
        super().__init__()
        self.every, self.fixed = every, fixed
        self.embedding = nn.Embedding(tables * rows, width)
        nn.init.normal_(self.embedding.weight, std=0.01)
        self.register_buffer("offsets", torch.arange(tables) * rows)
        self.bottom = mlp(dense, 256, width)
        pairs = torch.triu_indices(tables + 1, tables + 1, offset=1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = mlp(width + pairs.shape[1], 512, 256, 1)
        self.metrics = MetricCollection(
            {
                "auc": BinaryAUROC(validate_args=False),
                "ap": BinaryAveragePrecision(validate_args=False),
            }
        )

    def forward(self, x, ids):
        x = self.bottom(x)
        vectors = torch.cat((x.unsqueeze(1), self.embedding(ids + self.offsets)), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        crossed = products.index_select(1, self.pairs)
        return self.top(torch.cat((x, crossed), dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, ids, clicks = batch
        logits = self(x, ids)
        loss = F.binary_cross_entropy_with_logits(logits, clicks)
        self.metrics.update(logits.detach().sigmoid(), clicks.long())
        if self.fixed:
            if batch_idx % self.every == 0:
                scores = self.metrics.compute()
                self.report(batch_idx, loss, scores)
        else:
            scores = self.metrics.compute()
            self.log_dict(scores, on_step=True, prog_bar=True)
            if batch_idx % self.every == 0:
                self.report(batch_idx, loss, scores)
        return loss

    def report(self, step, loss, scores):
        print(f"step {step} loss {loss.item():.4f} auc {scores['auc']:.4f} ap {scores['ap']:.4f}")

    def on_train_epoch_end(self):
        self.metrics.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=self.device.type == "cuda")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32768)
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    L.seed_everything(0, verbose=False)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = Impressions(args.steps, args.batch_size, args.rows, args.tables, 13, device)
    model = ClickModel(args.tables, args.rows, 13, args.width, args.log_every, args.fixed)
    trainer = L.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, train_dataloaders=loader)


if __name__ == "__main__":
    main()
