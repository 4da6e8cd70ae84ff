"""Fine-tune a BERT classifier with the Hugging Face Trainer on synthetic sentences."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    """Random tokens; the label says whether the first token's number is odd."""

    def __init__(self, count, vocabulary, longest):
        self.count, self.vocabulary, self.longest = count, vocabulary, longest

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = int(torch.randint(8, self.longest + 1, (1,), generator=generator))
        tokens = torch.randint(1, self.vocabulary, (length,), generator=generator)
        return {"input_ids": tokens.tolist(), "labels": int(tokens[0]) % 2}


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    padded = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    tokens = torch.tensor(padded)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--logging-steps", type=int, default=1)
    parser.add_argument("--out", default="out-trainer")
    options = parser.parse_args()
    vocabulary = 30_522
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=options.hidden,
            num_hidden_layers=options.layers,
            num_attention_heads=max(1, options.hidden // 64),
            intermediate_size=4 * options.hidden,
        )
    )
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.out,
            per_device_train_batch_size=options.batch_size,
            max_steps=options.steps,
            logging_steps=options.logging_steps,
            dataloader_num_workers=options.workers,
            bf16=options.bf16,
            torch_compile=options.compile,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Sentences(100_000, vocabulary, options.length),
        data_collator=collate,
    )
    result = trainer.train()
    print(f"{result.metrics['train_steps_per_second']:.2f} steps a second")


if __name__ == "__main__":
    main()
