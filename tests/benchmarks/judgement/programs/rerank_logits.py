"""Rank passages with a causal language model that is asked whether a passage is relevant."""

import argparse

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

YES, NO = 9693, 2152


class Reranker:
    def __init__(self, model, last_only):
        self.model = model
        self.options = {"logits_to_keep": 1} if last_only else {}
        self.answers = torch.tensor([NO, YES], device=model.device)

    def score(self, prompts):
        logits = self.model(input_ids=prompts, use_cache=False, **self.options).logits
        answers = logits[:, -1].index_select(1, self.answers).float()
        return answers.softmax(dim=-1)[:, 1]


def rank_batch(reranker, prompts):
    return reranker.score(prompts)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--passages", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=3584,
        num_hidden_layers=args.layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    with device:
        model = Qwen2ForCausalLM(config)
    reranker = Reranker(model.to(dtype).eval(), last_only=args.fixed)

    for query in range(args.queries):
        # prompts are padded on the left: the answer follows the last token
        prompts = torch.randint(0, 151_643, (args.passages, args.length), device=device)
        scores = [rank_batch(reranker, batch) for batch in prompts.split(args.batch_size)]
        best = torch.cat(scores).topk(3)
        print(f"query {query}: {best.indices.tolist()}")


if __name__ == "__main__":
    main()
