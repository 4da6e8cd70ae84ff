"""Tune a Llama of transformers on preferences (DPO), next to a frozen reference model."""

import argparse
import copy

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


def log_probability(model, ids, prompt):
    """Of each answer: logits are only computed where the answer is."""
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, prompt - 1 : -1])
    answers = ids[:, prompt:]
    losses = F.cross_entropy(logits.flatten(0, 1).float(), answers.flatten(), reduction="none")
    return -losses.view(answers.shape).sum(dim=1)


def dpo_loss(policy, reference, ids, prompt, beta):
    with torch.no_grad():
        expected = log_probability(reference, ids, prompt)
    better, worse = (log_probability(policy, ids, prompt) - expected).chunk(2)
    return -F.logsigmoid(beta * (better - worse)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--answer", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=args.layers,
        num_attention_heads=16,
        num_key_value_heads=16,
    )
    policy = LlamaForCausalLM(config).to(device)
    reference = copy.deepcopy(policy).to(torch.bfloat16).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-6, fused=device.type == "cuda")

    # the better answers, then the worse ones, each after its prompt
    length = args.prompt + args.answer
    batches = torch.randint(0, 32_000, (8, 2 * args.pairs, length), device=device)
    batches[:, args.pairs :, : args.prompt] = batches[:, : args.pairs, : args.prompt]
    total = torch.zeros((), device=device)
    for step in range(args.steps):
        loss = dpo_loss(policy, reference, batches[step % 8], args.prompt, beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
        if (step + 1) % 50 == 0:
            print(f"step {step} mean loss {total.item() / 50:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
