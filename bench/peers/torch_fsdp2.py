#!/usr/bin/env python3
"""The peer of Temper's fsdp runs: PyTorch FSDP2 (fully_shard) over gloo on this CPU, the model of torch_baseline.py, a
process per rank. The first rank prints one line of JSON; the figure is the median over the steps in which the machine was
otherwise idle.

    OMP_NUM_THREADS=1 bench/peers/torch_baseline.sh --script torch_fsdp2.py --ranks 2 [--method lora]

Each block is a unit, and what stands outside of them another: as Temper gathers them. Weights are sharded in f32 and
gathered in bf16, gradients are reduced in f32 (for LoRA frozen weights are bf16): Temper's --dtype bf16. A step is forward,
backward, clipping and AdamW on 2,048 tokens per rank: 4 rows of 512, one document each, all supervised.
"""

import argparse
import datetime
import json
import os
import resource
import statistics
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from torch_baseline import QUIET_CORES, ROW_LENGTH, ROWS, build, others_cpu_seconds, peak_bytes


def shard(model, mesh, method):
    # Parameters of one unit have one dtype: FSDP flattens them together. For LoRA that is bf16 throughout, adapters too.
    if method == "lora":
        model = model.to(torch.bfloat16)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    base = model.base_model.model if method == "lora" else model
    for layer in base.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def rank_main(rank, arguments, store):
    torch.set_num_threads(arguments.threads)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks,
                                         timeout=datetime.timedelta(minutes=10))
    mesh = init_device_mesh("cpu", (arguments.ranks,))
    torch.manual_seed(0)
    model = shard(build(arguments), mesh, arguments.method)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak of training, not of drawing the random weights

    torch.manual_seed(1 + rank)  # rows of its own
    seconds, others, losses = [], [], []
    for _ in range(arguments.warmup + arguments.steps):
        ids = torch.randint(0, 32000, (arguments.rows, arguments.row_length))
        torch.distributed.barrier()
        begin, others_begin = time.perf_counter(), others_cpu_seconds()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.detach() / arguments.ranks
        torch.distributed.all_reduce(loss)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        # The other ranks are no disturbance: they have as much of the processors as this one.
        busy = others_cpu_seconds() - others_begin
        others.append(max(0.0, busy / seconds[-1] - (arguments.ranks - 1) * arguments.threads))

    peaks = [None] * arguments.ranks
    torch.distributed.all_gather_object(peaks, (peak_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    if rank == 0:
        measured = range(arguments.warmup, len(seconds))
        quiet = [i for i in measured if others[i] < QUIET_CORES]
        step = statistics.median(seconds[i] for i in (quiet or measured))
        print(json.dumps({
            "ranks": arguments.ranks, "threads": arguments.threads, "method": arguments.method,
            "attention": arguments.attention,
            "tokens_per_second": round(arguments.rows * arguments.row_length * arguments.ranks / step, 1),
            "step_seconds": round(step, 4),
            "quiet_steps": len(quiet),  # 0: every step was disturbed, the figure is of no use
            "step_seconds_all": [round(s, 3) for s in seconds],
            "others_cores_all": [round(o, 2) for o in others],
            "peak_rss_mib_of_ranks": [round(peak / 2**20) for peak, _ in peaks],
            "peak_rss_with_setup_mib_of_ranks": [round(peak / 2**10) for _, peak in peaks],
            "losses": [round(x, 4) for x in losses],
            "torch": torch.__version__, "transformers": transformers.__version__,
        }), flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--method", choices=["full", "lora"], default="full")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--row_length", type=int, default=ROW_LENGTH)
    arguments = parser.parse_args()
    arguments.precision = "autocast"  # f32 masters, for torch_baseline.build
    arguments.threads = int(os.environ.get("OMP_NUM_THREADS", 1))
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
