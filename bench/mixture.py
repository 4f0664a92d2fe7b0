#!/usr/bin/env python3
"""LoRA on a mixture of the shape of Qwen3-30B-A3B with random weights in nf4, in a memory cgroup of a machine's memory:
all weights in memory, or read from the disk for each use.

  bench/mixture.py FOLDER [--layers 48] [--memory 24GB] [--tokens 2048] [--rows 1] [--steps 4]
                   [--targets q_proj,k_proj,v_proj,o_proj] [--temper build/temper] [--options "..."]

Writes FOLDER/model_LAYERS first, if it is not there: a folder as bitsandbytes and transformers 4 save one, each expert's
matrix in nf4 (17 GB with 48 layers; one matrix of each shape is drawn and quantised by bitsandbytes, four times, and
they take turns). Writing needs torch and bitsandbytes, and the memory of a tensor.

--memory is that of the machine: what Linux itself takes of it (1 GB) is subtracted for the cgroup. With less than the
weights take they are read from the disk: FOLDER needs as much room again, for their copy in rows of memory.

Beside what a run reads per second stands what the disk gives to the same files, O_DIRECT, before and after.
"""

import argparse
import json
import os
import re
import statistics
import struct
import sys

import capacity

GB = 10**9
CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "head_dim": 128,
          "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4,
          "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True, "decoder_sparse_step": 1,
          "mlp_only_layers": [], "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
          "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0,
          "eos_token_id": 1, "hidden_act": "silu", "attention_bias": False, "router_aux_loss_coef": 0.001,
          "output_router_logits": False,
          "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                                  "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16",
                                  "llm_int8_skip_modules": ["lm_head", "gate"]}}
TYPES = {"torch.uint8": "U8", "torch.float32": "F32", "torch.bfloat16": "BF16"}


class Tensors:
    """Random tensors, by shape; four of each, which take turns."""

    def __init__(self):
        import bitsandbytes.functional
        import torch
        self.torch, self.bnb = torch, bitsandbytes.functional
        self.made, self.turn = {}, 0
        torch.manual_seed(1)

    def _draw(self, shape):
        return (self.torch.randn(shape) * 0.02).to(self.torch.bfloat16)

    def _raw(self, tensor):
        return TYPES[str(tensor.dtype)], list(tensor.shape), tensor.contiguous().view(self.torch.uint8).numpy().tobytes()

    def _quantise(self, shape):
        codes, state = self.bnb.quantize_4bit(self._draw(shape), blocksize=64, compress_statistics=True,
                                              quant_type="nf4")
        parts = {"": codes} | {"." + name: tensor for name, tensor in state.as_dict(packed=True).items()}
        return {end: self._raw(tensor) for end, tensor in parts.items()}

    def take(self, shape, kind):
        """(ending of the name, (dtype, shape, bytes)) of each tensor that files have."""
        if kind == "one":
            return {"": self._raw(self.torch.ones(shape, dtype=self.torch.bfloat16))}
        make = self._quantise if kind == "nf4" else lambda s: {"": self._raw(self._draw(s))}
        if (shape, kind) not in self.made:
            self.made[shape, kind] = [make(shape) for _ in range(4 if kind == "nf4" else 1)]
        self.turn += 1
        return self.made[shape, kind][self.turn % len(self.made[shape, kind])]


def layer(config, index):
    """(name, shape, kind) of a layer's tensors."""
    at = f"model.layers.{index}."
    hidden, head, ffn = config["hidden_size"], config["head_dim"], config["moe_intermediate_size"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{at}{name}.weight", (hidden,), "one"
    for name in ("q_norm", "k_norm"):
        yield f"{at}self_attn.{name}.weight", (head,), "one"
    for name, shape in (("q", (q, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, q))):
        yield f"{at}self_attn.{name}_proj.weight", shape, "nf4"
    yield f"{at}mlp.gate.weight", (config["num_experts"], hidden), "bf16"
    for e in range(config["num_experts"]):
        for name, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
            yield f"{at}mlp.experts.{e}.{name}_proj.weight", shape, "nf4"


def write_shard(path, named):
    header, at = {}, 0
    for name, (dtype, shape, data) in named.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in named.values():
            f.write(data)
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.rename(path + ".part", path)


def write_model(folder, config):
    """A shard a layer, and one of the rest."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        return
    capacity.write_model(folder, config, with_weights=False)
    tensors, shards, total = Tensors(), config["num_hidden_layers"] + 1, 0
    table = (config["vocab_size"], config["hidden_size"])
    rest = [("model.embed_tokens.weight", table, "bf16"), ("lm_head.weight", table, "bf16"),
            ("model.norm.weight", (config["hidden_size"],), "one")]
    where = {}
    for k in range(shards):
        named = {}
        for name, shape, kind in rest if k == 0 else layer(config, k - 1):
            for end, raw in tensors.take(shape, kind).items():
                named[name + end] = raw
        file = f"model-{k + 1:05d}-of-{shards:05d}.safetensors"
        write_shard(os.path.join(folder, file), named)
        where |= dict.fromkeys(named, file)
        total += sum(len(raw[2]) for raw in named.values())
    with open(index, "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)


def weights_of(folder):
    files = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".safetensors")]
    return files, sum(map(os.path.getsize, files))


def disk_rate(files):
    """Of some of the files, one after another."""
    some = files[1:9]
    sizes = [os.path.getsize(f) for f in some]
    return sum(sizes) / sum(size / capacity.disk_rate(f) for f, size in zip(some, sizes))


def train(arguments, model, limit):
    output = os.path.join(arguments.folder, "out")
    command = [arguments.temper, "train", "--model", model, "--data",
               os.path.join(capacity.EXAMPLE, "pirate_train.jsonl"), "--output_dir", output, "--overwrite",
               "--max_steps", str(arguments.steps), "--logging_steps", "1", "--save_steps", "0", "--tensorboard",
               "false", "--method", "lora", "--lora.r", "8",
               "--lora.target_modules", arguments.targets, "--max_seq_len", str(arguments.tokens),
               "--per_device_train_batch_size", str(arguments.rows), "--gradient_accumulation_steps", "1",
               "--memory.disk", arguments.folder] + arguments.options.split()
    rows, said, peak = capacity.run(command, limit, output)
    step, moved = capacity.report(rows, limit, peak, said)
    return sum(v for k, v in moved.items() if k.startswith("disk_to")) / step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--memory", default="24GB", help="of the machine, in GB")
    parser.add_argument("--tokens", type=int, default=2048, help="of a row")
    parser.add_argument("--rows", type=int, default=1, help="of a micro-batch, of which a step has one")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--targets", default="q_proj,k_proj,v_proj,o_proj", help="of LoRA; all-linear means experts, too")
    parser.add_argument("--temper", default=os.path.join(capacity.HERE, "..", "build", "temper"))
    parser.add_argument("--options", default="", help="more of temper train")
    parser.add_argument("--write", action="store_true", help="nothing but the folder")
    arguments = parser.parse_args()
    if arguments.steps < 4:
        parser.error("--steps: the first ones are not counted, 4 at least")
    model = os.path.join(arguments.folder, f"model_{arguments.layers}")
    write_model(model, CONFIG | {"num_hidden_layers": arguments.layers, "num_experts": arguments.experts})
    files, size = weights_of(model)
    memory = float(re.fullmatch(r"([0-9.]+) ?(GB)?", arguments.memory)[1])
    limit = int((memory - 1) * GB) // capacity.MIB * capacity.MIB
    print(f"{arguments.layers} layers of {arguments.experts} experts: {size / GB:.2f} GB of weights; a machine with "
          f"{memory:g} GB, {limit / GB:.2f} for the run; {arguments.rows} x {arguments.tokens} tokens a step")
    if arguments.write:
        return
    before = disk_rate(files)
    read = train(arguments, model, limit)
    after = disk_rate(files)
    disk = statistics.mean((before, after))
    print(f"  read {read / GB:.2f} GB/s; the disk gave {before / GB:.2f} before and {after / GB:.2f} GB/s after: "
          f"{read / disk:.2f} x")


if __name__ == "__main__":
    main()
