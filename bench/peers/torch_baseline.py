#!/usr/bin/env python3
"""The peer of Temper's training benchmark: transformers + PEFT on PyTorch, on this CPU. Prints one line of JSON.
The figure is the median over the steps in which the machine was otherwise idle.

    bench/peers/torch_baseline.sh --method full --precision autocast --compile   (the wrapper sets malloc, threads)

Model: Llama shape, 12 layers, hidden 768, 12 heads, 4 KV heads, ffn 2048, vocabulary 32000 untied: 100.07 M parameters
in matrix products; or, with random weights, the causal language model of --model: a name in examples/models, or a folder
with config.json. A step is forward, backward, clipping and AdamW on one micro-batch of 2,048 tokens: 4 rows of 512, one
document each, all supervised.

--precision autocast  f32 weights and states, bf16 matrix products: what Trainer's bf16=True does (for LoRA the frozen
                      weights are bf16, the adapter f32)
--precision bf16      all in bf16, states too: faster, less memory, and not the same training (no f32 master weights)
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import time

import peft
import torch
import transformers

ROWS, ROW_LENGTH = 4, 512
QUIET_CORES = 0.1  # a step counts as undisturbed while other processes take less than this
LORA = dict(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


def config_of(model):
    if os.path.isdir(model):
        return transformers.AutoConfig.from_pretrained(model, use_cache=False)
    for path in (pathlib.Path(__file__).parents[2] / "examples/models").glob("*.json"):
        config = json.loads(path.read_text()).get(model)
        if config:
            return getattr(transformers, config["architectures"][0]).config_class(**config, use_cache=False)
    raise SystemExit(f"torch_baseline.py: {model} is neither a folder nor a name in examples/models")


def build(arguments):
    if arguments.model:
        config = config_of(arguments.model)
    else:
        config = transformers.LlamaConfig(
            vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
            num_key_value_heads=4, max_position_embeddings=arguments.row_length, tie_word_embeddings=False,
            use_cache=False)
    frozen_bf16 = arguments.method == "lora" or arguments.precision == "bf16"
    dtype = torch.bfloat16 if frozen_bf16 else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=dtype, attn_implementation=arguments.attention)
    if arguments.method == "lora":
        model = peft.get_peft_model(
            model, peft.LoraConfig(**LORA), autocast_adapter_dtype=arguments.precision == "autocast")
    return model.train()


def matrix_parameters(model):
    """Parameters of the base model that are in matrix products: all but norms and the input embedding, which counts as
    the head if the two are tied."""
    base = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    head = base.get_output_embeddings().weight
    inputs = base.get_input_embeddings().weight
    return sum(p.numel() for n, p in model.named_parameters()
               if p.dim() == 2 and "lora_" not in n and (p is head or p is not inputs))


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def others_cpu_seconds():
    """CPU time spent so far by anyone but this process, time stolen by the hypervisor included."""
    with open("/proc/stat") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    user, niced, system, _, _, irq, softirq, steal = ticks
    return (user + niced + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - time.process_time()


def peak_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["full", "lora"], default="full")
    parser.add_argument("--model", help="a name in examples/models, or a folder with config.json")
    parser.add_argument("--precision", choices=["autocast", "bf16", "f32"], default="autocast")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--compile_mode", default="default")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--row_length", type=int, default=ROW_LENGTH)
    arguments = parser.parse_args()

    # Not sched_getaffinity: with OMP_PROC_BIND this thread is already bound to the first core.
    threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count()))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    imported = resident_bytes()
    model = build(arguments)
    vocabulary = model.get_input_embeddings().num_embeddings
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True)
    forward = torch.compile(model, mode=arguments.compile_mode) if arguments.compile else model
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak of training, not of drawing the random weights

    seconds, others, loss = [], [], None
    for _ in range(arguments.warmup + arguments.steps):
        ids = torch.randint(0, vocabulary, (arguments.rows, arguments.row_length))
        begin, others_begin = time.perf_counter(), others_cpu_seconds()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "autocast"):
            loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        seconds.append(time.perf_counter() - begin)
        others.append(max(0.0, others_cpu_seconds() - others_begin) / seconds[-1])

    tokens = arguments.rows * arguments.row_length
    measured = range(arguments.warmup, len(seconds))
    quiet = [i for i in measured if others[i] < QUIET_CORES]
    step = statistics.median(seconds[i] for i in (quiet or measured))
    matrix = matrix_parameters(model)
    flops = (6 if arguments.method == "full" else 4) * matrix * tokens
    weights = bytes_of(model.parameters())
    gradients = bytes_of(trained)
    states = bytes_of(t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t))
    print(json.dumps({
        **{k: v for k, v in vars(arguments).items() if k not in ("steps", "warmup")},
        "tokens_per_second": round(tokens / step, 1),
        "step_seconds": round(step, 4),
        "quiet_steps": len(quiet),  # 0: every step was disturbed, the figure is of no use
        "step_seconds_all": [round(s, 3) for s in seconds],
        "others_cores_all": [round(o, 2) for o in others],
        "gemm_gflops_per_second": round(flops / step / 1e9, 1),
        "matrix_parameters": matrix,
        "trained_parameters": sum(p.numel() for p in trained),
        "peak_rss_mib": round(peak_bytes() / 2**20),
        "peak_rss_with_setup_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
        "imported_rss_mib": round(imported / 2**20),
        "weights_mib": round(weights / 2**20),
        "gradients_mib": round(gradients / 2**20),
        "states_mib": round(states / 2**20),
        "beyond_mib": round((peak_bytes() - weights - gradients - states) / 2**20),
        "loss": round(loss, 4),
        "threads": threads,
        "malloc": os.path.basename(os.environ.get("LD_PRELOAD", "glibc")),
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
    }))


if __name__ == "__main__":
    main()
