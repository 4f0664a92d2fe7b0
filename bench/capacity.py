#!/usr/bin/env python3
"""Models larger than memory, trained in a memory cgroup: the kernel ends a run that takes more than its limit.

  lora  LoRA on a model of 2.2 GB of bf16 weights in a cgroup of a third of that: frozen weights are read from the
        model's files, around the page cache, for every use. Beside what a step reads per second stands what the disk
        gives to the same file, O_DIRECT, in order, eight requests of a MiB in flight, before and after the run.
  full  full fine-tuning of the benchmark model (docs/benchmarks.md) with a device limit of a tenth of its state, in a
        cgroup of what is planned and what a run wants beside it: with less it would spill to the disk.
  int8, nf4, cast
        in such a cgroup LoRA on a base of int8 and of nf4, and full fine-tuning whose bf16 weights are cast from their
        masters. In a cgroup of seven eighths of the plan the run with --memory.tiers device must be refused, not
        killed.

  bench/capacity.py [lora|full|int8|nf4|cast] [--temper build/temper] [--work FOLDER] [--steps 6]

Needs a memory cgroup (version 1 or 2) that this user may make; FOLDER must lie on the disk in question and have 2.5 GB
free. A minute or two on an idle machine.
"""

import argparse
import array
import json
import mmap
import os
import random
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "..", "examples", "plain")
MIB = 1 << 20

COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 2048,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "bos_token_id": 0, "eos_token_id": 1}
# 1.09 billion parameters.
LARGE = COMMON | {"vocab_size": 2048, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
                  "num_key_value_heads": 8, "intermediate_size": 5632}
BENCHMARK = COMMON | {"vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                      "num_key_value_heads": 4, "intermediate_size": 2048}


def die(message):
    sys.exit(f"capacity.py: {message}")


class MemoryCgroup:
    """A group beside this process's own: of version 2, one that has processes can have no groups."""

    def __init__(self, limit):
        with open("/proc/self/cgroup") as groups:
            own = [line.strip().split(":", 2) for line in groups]
        name = f"temper_capacity_{os.getpid()}"
        tried = []
        for mounted, controllers, maximum, self.peak_file in (
                ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
                ("/sys/fs/cgroup", "", "memory.max", "memory.peak")):
            for _, of, path in own:
                if of != controllers:
                    continue
                self.folder = os.path.join(mounted + os.path.dirname(path), name)
                try:
                    os.mkdir(self.folder)
                    self.write(maximum, limit)
                except OSError as error:
                    tried.append(str(error))
                    self.remove()
                    continue
                for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
                    try:
                        self.write(swap, 0 if swap == "memory.swap.max" else limit)
                    except OSError:
                        pass  # no accounting of swap
                return
        die("no memory cgroup can be made here: " + "; ".join(tried))

    def write(self, file, value):
        with open(os.path.join(self.folder, file), "w") as f:
            f.write(str(value))

    def enter(self):
        """In a child, before it becomes the program."""
        self.write("cgroup.procs", os.getpid())

    def peak(self):
        try:
            with open(os.path.join(self.folder, self.peak_file)) as f:
                return int(f.read())
        except OSError:
            return None  # kernels before 5.19 do not say it

    def remove(self):
        try:
            os.rmdir(self.folder)
        except OSError:
            pass


def shape_of(config):
    hidden, head = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    kv = config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name, out in (("q", hidden), ("k", kv), ("v", kv), ("o", hidden)):
            yield f"{at}self_attn.{name}_proj.weight", (out, hidden)
        for name in ("gate", "up"):
            yield f"{at}mlp.{name}_proj.weight", (config["intermediate_size"], hidden)
        yield at + "mlp.down_proj.weight", (hidden, config["intermediate_size"])
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def bf16(values):
    """The upper halves of f32."""
    return array.array("H", (struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values)).tobytes()


def write_weights(path, config):
    """Normal weights from a block of random numbers that repeats: what they are does not matter, where they lie does."""
    if os.path.exists(path):
        return
    generator = random.Random(1)
    block = bf16(generator.gauss(0, 0.02) for _ in range(1 << 18))
    header, at = {}, 0
    for name, shape in shape_of(config):
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for entry in header.values():
            left = entry["data_offsets"][1] - entry["data_offsets"][0]
            piece = bf16([1.0] * (left // 2)) if len(entry["shape"]) == 1 else block
            while left > 0:
                f.write(piece[:left])
                left -= min(left, len(piece))
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".part", path)


def write_model(folder, config, with_weights):
    os.makedirs(folder, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        with open(os.path.join(EXAMPLE, "model", file), "rb") as f, open(os.path.join(folder, file), "wb") as copy:
            copy.write(f.read())
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    if with_weights:
        write_weights(os.path.join(folder, "model.safetensors"), config)


def disk_rate(path):
    """Bytes per second of a whole file, O_DIRECT, eight pieces in flight."""
    width, piece = 8, MIB
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    pieces = iter(range(os.path.getsize(path) // piece))
    lock = threading.Lock()

    def work():
        buffer = mmap.mmap(-1, piece)  # page-aligned
        while True:
            with lock:
                k = next(pieces, None)
            if k is None:
                return
            if os.preadv(file, [buffer], k * piece) != piece:
                die(f"{path} is shorter than it was")

    threads = [threading.Thread(target=work) for _ in range(width)]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.monotonic() - begin
    os.close(file)
    return os.path.getsize(path) // piece * piece / seconds


def run_within(command, limit):
    """Runs it in a cgroup; (how it ended, the group's peak)."""
    group = MemoryCgroup(limit)
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              preexec_fn=group.enter)
        return done, group.peak()
    finally:
        group.remove()


def run(command, limit, output):
    """Runs it in a cgroup to its end; (rows of metrics.jsonl, what it said, the group's peak)."""
    done, peak = run_within(command, limit)
    if done.returncode != 0:
        die(f"the run ended with {done.returncode} under {limit / MIB:.0f} MiB:\n{done.stderr}")
    with open(os.path.join(output, "metrics.jsonl")) as f:
        rows = [row for row in map(json.loads, f) if "loss" in row]
    return rows, done.stderr, peak


def report(rows, limit, peak, said):
    ends = [row["seconds"] for row in rows]
    step = statistics.median(b - a for a, b in zip(ends[1:], ends[2:]))
    moved = rows[-1].get("bytes_moved", {})
    taken = "not said by this kernel" if peak is None else f"{peak / MIB:.0f} MiB"
    for line in said.splitlines():
        if line.startswith(("memory", "plan")):
            print("  " + line.strip())
    print(f"  cgroup of {limit / MIB:.0f} MiB, at most taken: {taken}")
    print(f"  {len(rows)} steps, losses {rows[0]['loss']:.3f} to {rows[-1]['loss']:.3f}, a step {step:.2f} s, "
          f"{statistics.median(row['tokens_per_second'] for row in rows[2:]):.0f} tokens/s")
    print("  moved per step: " + (", ".join(f"{k} {v / 1e9:.2f} GB" for k, v in moved.items()) or "nothing"))
    return step, moved


def train(arguments, folder, model, options):
    output = os.path.join(folder, "out")
    command = [arguments.temper, "train", "--model", model, "--data", os.path.join(EXAMPLE, "pirate_train.jsonl"),
               "--output_dir", output, "--overwrite", "--max_steps", str(arguments.steps), "--logging_steps", "1",
               "--save_steps", "0", "--tensorboard", "false", "--dtype", "bf16"] + options
    return command, output


def lora(arguments, folder):
    model = os.path.join(folder, "large")
    write_model(model, LARGE, with_weights=True)
    weights = os.path.join(model, "model.safetensors")
    size = os.path.getsize(weights)
    limit = size // 3 // MIB * MIB
    # Of the limit, 150 MiB are for what a process takes beside its arenas.
    command, output = train(arguments, folder, model,
                            ["--method", "lora", "--lora.r", "8", "--max_seq_len", "128",
                             "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"])
    print(f"LoRA, {size / 1e9:.2f} GB of weights, {size / limit:.2f} x the limit")
    before = disk_rate(weights)
    rows, said, peak = run(command, limit, output)
    after = disk_rate(weights)
    step, moved = report(rows, limit, peak, said)
    read = sum(v for k, v in moved.items() if k.startswith("disk_to"))
    disk = statistics.mean((before, after))
    print(f"  read {read / step / 1e9:.2f} GB/s; the disk gave {before / 1e9:.2f} before and {after / 1e9:.2f} GB/s "
          f"after: {read / step / disk:.2f} x")


def planned(arguments, model, options):
    """(bytes of the arenas, limit of a cgroup that holds them)"""
    text = subprocess.run([arguments.temper, "plan", "--json", "--model", model, "--dtype", "bf16"] +
                          [o for o in options if o != "--from_scratch"], stdout=subprocess.PIPE, check=True).stdout
    arenas = sum(tier["total"] for name, tier in json.loads(text)["bytes"].items() if name in ("device", "host"))
    # Beside its arenas a run leaves 150 MiB, and 1/64 for page tables (run/machine_limits.cc), of what is free when it
    # asks, by when it has taken some 30 MiB.
    return arenas, (arenas + 150 * MIB) * 64 // 63 + 64 * MIB


def run_as_planned(arguments, folder, model, options, title):
    """Runs in a cgroup of what is planned; (command, bytes of the arenas)"""
    command, output = train(arguments, folder, model, options)
    arenas, limit = planned(arguments, model, options)
    print(f"{title}: {arenas / MIB:.0f} MiB planned")
    rows, said, peak = run(command, limit, output)
    report(rows, limit, peak, said)
    if "everything in memory takes" in said:
        die("the run set itself limits of the cgroup's memory: it is not the one that was planned")
    return command, arenas


def full(arguments, folder):
    model = os.path.join(folder, "benchmark")
    write_model(model, BENCHMARK, with_weights=False)
    options = ["--from_scratch", "--method", "full", "--max_seq_len", "512", "--per_device_train_batch_size", "1",
               "--gradient_accumulation_steps", "2", "--memory.device", "224MiB", "--rates", "typical"]
    run_as_planned(arguments, folder, model, options,
                   "Full fine-tuning, 2.24 GB of state, a device of 224 MiB, with the host's")


def in_memory(arguments, folder, title, config, options):
    model = os.path.join(folder, title)
    write_model(model, config, with_weights="--from_scratch" not in options)
    command, arenas = run_as_planned(arguments, folder, model, options, " ".join(options))
    small = arenas * 7 // 8
    done, _ = run_within(command + ["--memory.tiers", "device"], small)
    if done.returncode <= 0 or "error:" not in done.stderr:
        die(f"under {small / MIB:.0f} MiB it was not refused, but ended with {done.returncode}:\n{done.stderr}")
    print(f"  under {small / MIB:.0f} MiB: {done.stderr.strip().splitlines()[-1]}")


def quantised(base):
    return lambda arguments, folder: in_memory(
        arguments, folder, "large", LARGE,
        ["--method", "lora", "--base_dtype", base, "--lora.r", "8", "--max_seq_len", "128",
         "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"])


def cast(arguments, folder):
    in_memory(arguments, folder, "benchmark", BENCHMARK,
              ["--from_scratch", "--method", "full", "--memory.bf16_weights", "cast", "--max_seq_len", "512",
               "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "1"])


KINDS = {"lora": lora, "full": full, "int8": quantised("int8"), "nf4": quantised("nf4"), "cast": cast}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=KINDS, help="one of these; else all")
    parser.add_argument("--temper", default=os.path.join(HERE, "..", "build", "temper"))
    parser.add_argument("--work", default="/tmp/temper_capacity", help="the folder of models and runs")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    if arguments.steps < 4:
        parser.error("--steps: the first ones are not counted, 4 at least")
    for name, kind in KINDS.items():
        if arguments.what in (None, name):
            kind(arguments, arguments.work)


if __name__ == "__main__":
    main()
