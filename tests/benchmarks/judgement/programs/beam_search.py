"""Write captions with beam search and a GPT-2 of transformers: one token of each beam at a time."""

import argparse

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel


def choose(total, beams, histories):
    """Go through the sentences and their candidates, as a textbook does it."""
    vocabulary = total.shape[-1]
    tokens, origins, scores, following = [], [], [], []
    for sentence in range(len(total)):
        values, places = total[sentence].view(-1).topk(beams)
        for value, place in zip(values, places, strict=True):
            beam = sentence * beams + place.item() // vocabulary
            token = place.item() % vocabulary
            origins.append(beam)
            tokens.append(token)
            scores.append(value.item())
            following.append([*histories[beam], token])
    device = total.device
    return (
        torch.tensor(tokens, device=device).unsqueeze(1),
        torch.tensor(origins, device=device),
        torch.tensor(scores, device=device).view(-1, beams),
        following,
    )


def choose_together(total, beams, histories):
    """Choose for all sentences at once and keep the histories on the device."""
    sentences, _, vocabulary = total.shape
    scores, places = total.flatten(1).topk(beams)
    first = torch.arange(sentences, device=total.device).unsqueeze(1) * beams
    origins = (first + places // vocabulary).flatten()
    tokens = (places % vocabulary).view(-1, 1)
    return tokens, origins, scores, torch.cat((histories[origins], tokens), dim=1)


def advance(model, cache, tokens, scores, histories, select):
    sentences, beams = scores.shape
    logits = model(input_ids=tokens, past_key_values=cache, use_cache=True).logits[:, -1]
    log_probs = logits.float().log_softmax(dim=-1)
    total = scores.unsqueeze(2) + log_probs.view(sentences, beams, -1)
    tokens, origins, scores, histories = select(total, beams, histories)
    cache.reorder_cache(origins)
    return tokens, scores, histories


@torch.inference_mode()
def caption(model, prompts, beams, count, fixed):
    sentences, device = len(prompts), prompts.device
    prompts = prompts.repeat_interleave(beams, dim=0)
    cache = DynamicCache(config=model.config)
    model(input_ids=prompts[:, :-1], past_key_values=cache, use_cache=True)
    tokens = prompts[:, -1:]
    scores = torch.full((sentences, beams), -1e9, device=device)
    scores[:, 0] = 0.0
    histories = prompts if fixed else prompts.tolist()
    select = choose_together if fixed else choose
    for _ in range(count):
        tokens, scores, histories = advance(model, cache, tokens, scores, histories, select)
    return [list(map(int, histories[i])) for i in range(0, sentences * beams, beams)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = GPT2Config(
        n_layer=8, n_embd=512, n_head=8, vocab_size=20_000, bos_token_id=None, eos_token_id=None
    )
    model = GPT2LMHeadModel(config).to(device, dtype).eval()
    for number in range(args.batches):
        prompts = torch.randint(0, 20_000, (args.batch_size, 8), device=device)
        captions = caption(model, prompts, args.beams, args.tokens, args.fixed)
        print(f"batch {number}: {captions[0][8:16]}")


if __name__ == "__main__":
    main()
