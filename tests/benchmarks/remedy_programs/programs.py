"""Small programs that show one remedy each, to be recorded on one GPU, or on two.

    python programs.py record FOLDER [NAME ...]   # FOLDER/NAME.pt.trace.json.gz, a process each
    torchrun --standalone --nproc-per-node=2 programs.py ranks FOLDER [NAME ...]
    python programs.py run NAME                   # without a profiler
    python programs.py list

A function sets up and returns a step. Its name is a remedy's id with underscores, or that of a
library. `tests/golden/test_remedy_programs.py` says what each shows; ``traces/`` has those recorded
on H100s, packed by `tests/benchmarks/judgement/packed.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CUDA = "cuda" if torch.cuda.is_available() else "cpu"
WAIT, WARM_UP, ACTIVE = 3, 2, 6
FROM_THE_FIRST = {"first_compilation", "first_cudnn_benchmark", "first_communicator"}
WITHOUT_STACKS = {"first_compilation"}  # those of the compiler are 25 MB


def network(width: int = 1024, layers: int = 6) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*parts).to(CUDA)


class Training:
    """A network with an optimizer, and a batch on the GPU."""

    def __init__(self, batch: int = 2048, width: int = 1024, layers: int = 6, optimizer=None):
        self.net = network(width, layers)
        self.x = torch.randn(batch, width, device=CUDA)
        fused = {"fused": True} if CUDA == "cuda" else {}
        self.optimizer = (
            optimizer(self.net)
            if optimizer
            else torch.optim.AdamW(self.net.parameters(), lr=1e-4, **fused)
        )

    def loss(self, x=None):
        return self.net(self.x if x is None else x).square().mean()

    def step(self, x=None):
        self.optimizer.zero_grad()
        loss = self.loss(x)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


# --- reads ---


def print_tensor():
    t = Training()

    def step():
        t.step()
        with contextlib.redirect_stdout(io.StringIO()):
            print(t.net[0].bias)

    return step


def scalar_index():
    t = Training()
    table = torch.randn(4096, 1024, device=CUDA)

    def step():
        length = (t.net(t.x)[0].abs().sum().long() % 512) + 512
        t.step(table[:length])

    return step


def tensor_condition():
    t = Training()

    def step():
        loss = t.step()
        if torch.isnan(loss):
            raise RuntimeError

    return step


def synchronize_for_copy():
    t = Training()
    pinned = torch.empty(2048, 1024, pin_memory=CUDA == "cuda")

    def step():
        with torch.no_grad():
            pinned.copy_(t.net(t.x), non_blocking=True)
        torch.cuda.current_stream().synchronize()
        pinned.numpy()[0].sum()
        t.step()

    return step


def non_blocking_to_pageable():
    t = Training()
    host = torch.empty(2048, 1024)

    def step():
        with torch.no_grad():
            host.copy_(t.net(t.x), non_blocking=True)
        t.step()

    return step


def read_for_next_input():
    policy = network(512, 4)
    state = np.zeros((256, 512), dtype=np.float32)

    def step():
        nonlocal state
        with torch.no_grad():
            for _ in range(4):
                x = torch.from_numpy(state).to(CUDA)
                action = policy(x).argmax(dim=-1).cpu().numpy()
                state = np.roll(state, 1, axis=1) + action[:, None].astype(np.float32) % 7

    return step


def read_that_goes_back():
    t = Training()
    embedding = nn.Embedding(1024, 1024).to(CUDA)

    def step():
        with torch.no_grad():
            x = t.x
            for _ in range(4):
                token = t.net(x).argmax(dim=-1).cpu()
                x = embedding(token.to(CUDA))

    return step


def packed_lengths():
    rnn = nn.LSTM(256, 256, batch_first=True).to(CUDA)
    lengths = torch.randint(16, 64, (64,))
    lengths[0] = 64
    x = torch.randn(64, 64, 256, device=CUDA)

    def step():
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)
        out.square().mean().backward()

    return step


def one_hot_classes():
    t = Training()
    labels = torch.randint(0, 1024, (2048,), device=CUDA)

    def step():
        t.step(F.one_hot(labels).float()[:, :1024] if CUDA == "cuda" else None)

    labels[0] = 1023
    return step


def normal_checks_scale():
    t = Training()
    torch.distributions.Distribution.set_default_validate_args(False)

    def step():
        with torch.no_grad():
            mean = t.net(t.x)
            noise = torch.distributions.Normal(mean, mean.abs() + 0.1).sample()
        t.step(noise)

    return step


def count_values():
    t = Training()
    labels = torch.randint(0, 64, (65536,), device=CUDA)

    def step():
        weights = torch.bincount(labels).float()
        t.step()
        torch.unique(labels)
        weights.sum()

    return step


def mask_assignment():
    t = Training()

    def step():
        x = t.x.clone()
        mask = x > 1
        x[mask] = x[mask].tanh()
        t.step(x)

    return step


def boolean_mask_backward():
    t = Training()
    mask = torch.rand(2048, device=CUDA) > 0.5

    def step():
        t.optimizer.zero_grad()
        t.net(t.x)[mask].square().mean().backward()
        t.optimizer.step()

    return step


def index_on_host():
    t = Training()

    def step():
        t.step(t.x[torch.randperm(2048)])

    return step


def mask_loop():
    t = Training(256, 256, 2)
    clouds = torch.randn(64, 512, 3, device=CUDA)

    def step():
        near = clouds.norm(dim=-1) < 1.5
        highest = [clouds[i][near[i]].max() for i in range(64)]
        t.step()
        return torch.stack(highest)

    return step


# --- optimizers, clipping, scaling ---


class LoopSGD(torch.optim.Optimizer):
    """An optimizer of one's own, one tensor at a time."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                m.mul_(0.9).add_(p.grad)
                p.add_(m.sign(), alpha=-group["lr"])


def optimizer_step_loop():
    t = Training(256, 256, 24, lambda net: LoopSGD(net.parameters(), 1e-4))
    return t.step


def optimizer_step_on_gpu():
    t = Training(256, 256, 12, lambda net: torch.optim.Adam(net.parameters(), foreach=False))
    t.step()
    for state in t.optimizer.state.values():
        state["step"] = state["step"].to(CUDA)
    return t.step


def clip_loop():
    t = Training(256, 256, 24)

    def step():
        t.optimizer.zero_grad()
        t.loss().backward()
        nn.utils.clip_grad_norm_(t.net.parameters(), 1.0, foreach=False)
        t.optimizer.step()

    return step


def scaler_get_scale():
    t = Training()
    scaler = torch.amp.GradScaler(CUDA)

    def step():
        t.optimizer.zero_grad()
        with torch.autocast(CUDA, dtype=torch.float16):
            loss = t.loss()
        scaler.scale(loss).backward()
        scaler.step(t.optimizer)
        scaler.update()
        return scaler.get_scale()

    return step


def scheduler_reads_loss():
    t = Training()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(t.optimizer)

    def step():
        schedule.step(t.step())

    return step


def checkpoint_recompute():
    from torch.utils.checkpoint import checkpoint

    t = Training(layers=8)

    def step():
        t.optimizer.zero_grad()
        x = t.x
        for i in range(0, len(t.net), 2):
            x = checkpoint(t.net[i : i + 2], x, use_reentrant=False)
        x.square().mean().backward()
        t.optimizer.step()

    return step


class Experts(nn.Module):
    def __init__(self, width: int = 512, experts: int = 8):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        weight, chosen = self.router(x).softmax(dim=-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, slot = torch.where(chosen == number)
            out.index_add_(0, row, expert(x[row]) * weight[row, slot, None])
        return out


def expert_loop():
    net = nn.Sequential(Experts(), Experts()).to(CUDA)
    x = torch.randn(1024, 512, device=CUDA)

    def step():
        net(x).square().mean().backward()

    return step


# --- data ---


class Samples(Dataset):
    def __init__(self, kind: str = "plain", count: int = 100_000):
        self.kind, self.count = kind, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.kind == "many":
            return {f"field{i}": torch.full((8,), float(index)) for i in range(200)}
        if self.kind == "short":
            time.sleep(0.002)
        return torch.randn(1024)


def take(loader):
    while True:
        yield from loader


def workers_started_again():
    t = Training()
    loader = DataLoader(Samples(count=128), batch_size=64, num_workers=2)

    def step():
        for batch in loader:
            t.step(batch.to(CUDA))

    return step


def unpickling_in_training_thread():
    t = Training(256, 1024, 2)
    batches = take(DataLoader(Samples("many"), batch_size=16, num_workers=4))

    def step():
        next(batches)
        t.step()

    return step


class Growing:
    """A collate function whose batches are larger each time."""

    def __init__(self):
        self.calls = 0

    def __call__(self, samples):
        self.calls += 1
        return torch.stack(samples).repeat(self.calls * 8, 1)


def pin_thread_allocates():
    t = Training()
    loader = DataLoader(
        Samples(), batch_size=64, num_workers=2, pin_memory=True, collate_fn=Growing()
    )
    batches = take(loader)

    def step():
        batch = next(batches).to(CUDA, non_blocking=True)
        for _ in range(4):
            t.step(batch[:2048])

    return step


# --- memory, plans, tuning ---


def allocator_churn():
    torch.cuda.set_per_process_memory_fraction(4e9 / torch.cuda.mem_get_info()[1])
    t = Training()
    number = 0

    def step():
        nonlocal number
        number += 1
        for i in range(2):
            torch.empty(
                int(2.2e9) + (i + 2 * number) * 64_000_000, dtype=torch.uint8, device=CUDA
            ).zero_()
        t.step()

    return step


# --- Python ---


def prepare(number):
    return [np.sort(np.random.default_rng(number).random(200_000)) for _ in range(3)]


def thread_wait():
    t = Training()
    pool = ThreadPoolExecutor(1)

    def step():
        x = pool.submit(prepare, 1).result()[0]
        t.step()
        return x

    return step


# --- first uses: recorded from the first step on ---


def first_compilation():
    t = Training()
    forward = torch.compile(t.net)

    def step():
        t.optimizer.zero_grad()
        forward(t.x).square().mean().backward()
        t.optimizer.step()

    return step


def first_cudnn_benchmark():
    torch.backends.cudnn.benchmark = True
    net = nn.Sequential(*(nn.Conv2d(32, 32, 3, padding=1) for _ in range(4))).to(CUDA)
    x = torch.randn(8, 32, 96, 96, device=CUDA)

    def step():
        net(x).mean().backward()

    return step


def first_communicator():
    """One rank is enough: the communicator is made all the same."""
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29581")
    dist.init_process_group("nccl", rank=0, world_size=1)
    t = Training()

    def step():
        t.step()
        dist.all_reduce(t.net[0].bias.grad)

    return step


# --- libraries ---


def hf_trainer():
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512
    )
    model = BertForSequenceClassification(config)

    class Rows(Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            return {"input_ids": torch.randint(0, 1000, (64,)), "labels": index % 2}

    def train(after_step):
        class EachStep(TrainerCallback):
            def on_step_end(self, *_, **__):
                after_step()

        arguments = TrainingArguments(
            tempfile.mkdtemp(),
            max_steps=WAIT + WARM_UP + ACTIVE + 1,
            logging_steps=1,
            per_device_train_batch_size=16,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=Rows(), callbacks=[EachStep()]).train()

    return train


def torchmetrics_metrics():
    from torchmetrics import MeanMetric
    from torchmetrics.classification import MulticlassAccuracy

    t = Training()
    accuracy = MulticlassAccuracy(1024).to(CUDA)
    mean = MeanMetric().to(CUDA)
    labels = torch.randint(0, 1024, (2048,), device=CUDA)

    def step():
        with torch.no_grad():
            accuracy(t.net(t.x), labels)
        mean.update(t.step())

    return step


def detection_choices():
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None).to(CUDA)
    images = [torch.rand(3, 320, 320, device=CUDA) for _ in range(2)]
    box = torch.tensor([[20.0, 30.0, 120.0, 160.0]], device=CUDA)
    targets = [{"boxes": box, "labels": torch.ones(1, dtype=torch.long, device=CUDA)}] * 2

    def step():
        sum(model(images, targets).values()).backward()

    return step


# --- two ranks ---


def object_collectives():
    import torch.distributed as dist

    t = Training()

    def step():
        t.step()
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, {"rank": dist.get_rank(), "seen": 1})

    return step


def collectives_in_a_row():
    import torch.distributed as dist

    t = Training()
    counts = [torch.ones(64, device=CUDA) for _ in range(12)]

    def step():
        t.step()
        for x in counts:
            dist.all_reduce(x)

    return step


def sync_batch_norm():
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers)).to(CUDA)
    net = nn.parallel.DistributedDataParallel(net)
    x = torch.randn(16, 32, 64, 64, device=CUDA)

    def step():
        net(x).mean().backward()

    return step


def fsdp_small_groups():
    from torch.distributed.fsdp import fully_shard

    net = network(256, 24)
    for part in net:
        if isinstance(part, nn.Linear):
            fully_shard(part)
    fully_shard(net)
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(512, 256, device=CUDA)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def moe_split_sizes():
    import torch.distributed as dist

    net = network(512, 2)
    x = torch.randn(2048, 512, device=CUDA)

    def step():
        y = x
        for _ in range(4):
            share = (y[:, 0] > 0).sum()
            sent = torch.stack((share, len(y) - share))
            received = torch.empty_like(sent)
            dist.all_to_all_single(received, sent)
            splits, back = sent.tolist(), received.tolist()
            out = y.new_empty(sum(back), 512)
            dist.all_to_all_single(out, y.contiguous(), back, splits)
            y = net(x)

    return step


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    net = network(1024, 4)
    plan = {
        "0": ColwiseParallel(),
        "2": RowwiseParallel(),
        "4": ColwiseParallel(),
        "6": RowwiseParallel(),
    }
    net = parallelize_module(net, mesh, plan)
    x = torch.randn(512, 1024, device=CUDA)

    def step():
        net(x).square().mean().backward()

    return step


# --- generation ---


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=3)).to(CUDA, torch.bfloat16).eval()
    return model, torch.randint(0, 50_257, (16, 256), device=CUDA)


def hf_generate_eager():
    model, prompts = gpt2()

    def step():
        model.generate(prompts, max_new_tokens=4, min_new_tokens=4, pad_token_id=0)

    return step


def no_key_value_cache():
    model, tokens = gpt2()

    @torch.inference_mode()
    def step():
        nonlocal tokens
        logits = model(tokens, use_cache=False).logits[:, -1]
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)

    return step


RANKS = (
    object_collectives, collectives_in_a_row, sync_batch_norm, fsdp_small_groups, moe_split_sizes,
    tensor_parallel,
)  # fmt: skip
PROGRAMS = {
    f.__name__: f
    for f in (
        print_tensor, scalar_index, tensor_condition, synchronize_for_copy,
        non_blocking_to_pageable, read_for_next_input, read_that_goes_back, packed_lengths,
        one_hot_classes, normal_checks_scale, count_values, mask_assignment, boolean_mask_backward,
        index_on_host, mask_loop, optimizer_step_loop, optimizer_step_on_gpu, clip_loop,
        scaler_get_scale, scheduler_reads_loss, checkpoint_recompute, expert_loop,
        workers_started_again, unpickling_in_training_thread, pin_thread_allocates, allocator_churn,
        thread_wait, first_compilation, first_cudnn_benchmark, first_communicator, hf_trainer,
        torchmetrics_metrics, detection_choices, no_key_value_cache, hf_generate_eager,
    )
}  # fmt: skip
OF_RANKS = {f.__name__: f for f in RANKS}
TAKES_CALLBACK = {"hf_trainer"}


def repeat(name: str, after_step) -> None:
    program = (PROGRAMS | OF_RANKS)[name]()
    if name in TAKES_CALLBACK:
        program(after_step)
        return
    for _ in range(WAIT + WARM_UP + ACTIVE + 1):
        program()
        after_step()


def record(name: str, path: Path) -> None:
    from torch.profiler import ProfilerActivity, profile, schedule

    def write(profiler) -> None:
        profiler.export_chrome_trace(str(path))

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (CUDA == "cuda")
    plan = schedule(wait=WAIT, warmup=WARM_UP, active=ACTIVE, repeat=1)
    if name in FROM_THE_FIRST:
        plan = schedule(wait=0, warmup=0, active=ACTIVE, repeat=1)
    stacks = name not in WITHOUT_STACKS
    with profile(activities=activities, schedule=plan, on_trace_ready=write, with_stack=stacks,
                 record_shapes=False) as profiler:  # fmt: skip
        repeat(name, profiler.step)


def main() -> None:
    task, *rest = sys.argv[1:] or ["list"]
    if task == "list":
        print(*PROGRAMS, "", *OF_RANKS, sep="\n")
    elif task == "run":
        repeat(rest[0], lambda: None)
    elif task == "one":
        record(rest[1], Path(rest[0]) / f"{rest[1]}.pt.trace.json.gz")
    elif task == "record":
        folder, *names = rest
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in names or PROGRAMS:
            child = subprocess.run(
                [sys.executable, __file__, "one", folder, name], timeout=240, check=False
            )
            print(f"{name:32} {'recorded' if child.returncode == 0 else 'FAILED'}", flush=True)
    elif task == "ranks":
        folder, *names = rest
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in names or OF_RANKS:
            record(name, Path(folder) / f"{name}_rank{rank}.pt.trace.json.gz")
            torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
