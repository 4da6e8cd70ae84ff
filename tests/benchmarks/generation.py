"""Time what caches win where transformers generates: `no-key-value-cache`, `hf-generate-eager`.

    python tests/benchmarks/generation.py          # on an NVIDIA GPU, with transformers

Each pair of arguments of ``generate`` takes turns in one process, without a profiler.
"""

from __future__ import annotations

import time
from statistics import median

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

ROUNDS, CALLS, WARM_UP = 3, 8, 4
NO_CACHE, CACHE, STATIC = {"use_cache": False}, {}, {"cache_implementation": "static"}


def decoder(model, batch, length, count):
    """A function that generates tokens behind some prompts, with more arguments."""
    prompts = torch.randint(0, model.config.vocab_size, (batch, length), device="cuda")

    def generate(**more):
        mask = torch.ones_like(prompts)
        model.generate(
            prompts, attention_mask=mask, max_new_tokens=count, min_new_tokens=count,
            do_sample=False, pad_token_id=0, **more,
        )  # fmt: skip

    return generate


def gpt2(batch, length, count, **sizes):
    return decoder(loaded(GPT2LMHeadModel(GPT2Config(**sizes))), batch, length, count)


def llama(batch, length, count):
    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=32_000,
    )  # fmt: skip
    return decoder(loaded(LlamaForCausalLM(config)), batch, length, count)


def whisper(batch, count):
    config = WhisperConfig(
        d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
    )  # fmt: skip
    model = loaded(WhisperForConditionalGeneration(config))
    model.generation_config.forced_decoder_ids = None
    features = torch.randn(batch, 80, 3000, device="cuda", dtype=torch.bfloat16)
    ids = torch.full((batch, 4), 50_258, device="cuda")

    def generate(**more):
        model.generate(
            input_features=features, decoder_input_ids=ids, max_new_tokens=count,
            min_new_tokens=count, do_sample=False, **more,
        )  # fmt: skip

    return generate


def loaded(model):
    return model.to("cuda", torch.bfloat16).eval()


def time_of(generate, arguments) -> float:
    """The median of some calls, ms."""
    taken = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        begun_s = time.perf_counter()
        generate(**arguments)
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - begun_s))
    return median(taken)


@torch.inference_mode()
def main() -> None:
    """Print a row for each program: ms as it is and fixed, of each round."""
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, flush=True)
    for name, generate, before, after in (
        ("GPT-2, 32 x 384 + 10 tokens, no cache", gpt2(32, 384, 10), NO_CACHE, CACHE),
        ("small GPT-2, 1 x 48 + 10, no cache",
         gpt2(1, 48, 10, n_layer=4, n_embd=256, n_head=4), NO_CACHE, CACHE),
        ("GPT-2, 4 x 96 + 24", gpt2(4, 96, 24), CACHE, STATIC),
        ("Llama of 12 layers, 4 x 96 + 24", llama(4, 96, 24), CACHE, STATIC),
        ("Whisper, 32 x 3,000 + 24", whisper(32, 24), CACHE, STATIC),
    ):  # fmt: skip
        for arguments in (before, after) * WARM_UP:
            generate(**arguments)
        rounds = [(time_of(generate, before), time_of(generate, after)) for _ in range(ROUNDS)]
        left = [fixed / as_it_is for as_it_is, fixed in rounds]
        cells = (f"{median(column):.1f}" for column in zip(*rounds, strict=True))
        print(f"| {name} | {' | '.join(cells)} | {min(left):.0%} to {max(left):.0%} |", flush=True)


if __name__ == "__main__":
    main()
