#!/usr/bin/env python3
"""Steps of transformers and PEFT on a GPU: what bench/gpu_step is compared with.

Same shape (a config.json with random weights), same rows of 2048 tokens, bf16, SDPA, LoRA r=16 on all linear modules or
every weight, fused AdamW, no checkpointing unless asked for. Full training is all in bf16, states too: faster and with less
memory than Temper, which keeps f32 masters and moments. Eager and torch.compile are timed one after the other; the
better of the two counts. Prints one line each.

  torch_gpu.py CONFIG.json lora|full ROWS MICRO_BATCHES [--steps 6] [--checkpointing] [--device cuda] [--row 2048]
"""
import argparse
import json
import time

import torch
import transformers


def make_model(args, device):
    with open(args.config) as file:
        config = transformers.LlamaConfig(**json.load(file))
    config._attn_implementation = 'sdpa'
    config.use_cache = False
    torch.manual_seed(1)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(default)
    if args.method == 'lora':
        import peft
        # Adapters in bf16, too: in f32, PEFT's default, their products would be f32's, and slower.
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=16, target_modules='all-linear'),
                                    autocast_adapter_dtype=False)
    if args.checkpointing:
        model.gradient_checkpointing_enable()
        if args.method == 'lora':
            model.enable_input_require_grads()
    model.train()
    return model, config


def synchronize(device):
    if device == 'cuda':
        torch.cuda.synchronize()


def time_steps(model, config, args, device):
    """Median seconds of a step, after two that are not counted."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=device == 'cuda')
    tokens = torch.randint(0, config.vocab_size, (args.micro_batches, args.rows, args.row), device=device)
    seconds = []
    for step in range(args.steps + 2):
        synchronize(device)
        begin = time.perf_counter()
        for micro_batch in tokens:
            loss = model(input_ids=micro_batch, labels=micro_batch).loss / args.micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize(device)
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[len(seconds) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('method', choices=['lora', 'full'])
    parser.add_argument('rows', type=int)
    parser.add_argument('micro_batches', type=int)
    parser.add_argument('--steps', type=int, default=6)
    parser.add_argument('--row', type=int, default=2048)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--checkpointing', action='store_true')
    args = parser.parse_args()
    model, config = make_model(args, args.device)
    tokens = args.rows * args.micro_batches * args.row
    for name in ['eager', 'compiled']:
        if args.device == 'cuda':
            torch.cuda.reset_peak_memory_stats()
        try:
            timed = model if name == 'eager' else torch.compile(model)
            seconds = time_steps(timed, config, args, args.device)
        except torch.cuda.OutOfMemoryError:
            print(f'torch {torch.__version__} {name}: out of memory', flush=True)
            torch.cuda.empty_cache()
            continue
        peak = torch.cuda.max_memory_reserved() / 2**30 if args.device == 'cuda' else 0.0
        print(f'torch {torch.__version__}, transformers {transformers.__version__} {name}, {args.method}, '
              f'{args.micro_batches} x {args.rows} rows of {args.row}: {tokens / seconds:.0f} tokens/s, '
              f'step {seconds * 1e3:.1f} ms, {peak:.1f} GiB reserved', flush=True)


if __name__ == '__main__':
    main()
