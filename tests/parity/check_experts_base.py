#!/usr/bin/env python3
"""By hand: frozen experts that Temper keeps quantised, beside what bitsandbytes and transformers dequantise them to.

    check_experts_base.py TEMPER FOLDER [MODEL ...]

Makes small random mixtures in FOLDER: as `temper --base_dtype nf4` reads them (in MXFP4, or as bitsandbytes saves
nf4), and once more with the
numbers that bitsandbytes (or transformers) dequantises them to, in bf16. Steps of LoRA on both must have the same losses
to the last digit. Prints whether they do, and what transformers in f32 makes of the second folder's first batch.

Blocks of 64 elements run over the whole tensor, so in rows of 96 they begin in one and end in the next. For these
bitsandbytes' own library for CPUs (0.50.2) dequantises with the absmax of other blocks (docs/correctness.md), so what
is compared with are its codes and absmaxes, multiplied here; where its library is right, it must give the same.
"""
import json
import pathlib
import subprocess
import sys

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig, MixtralConfig, Qwen3MoeConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

SIZES = dict(vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, initializer_range=0.1, bos_token_id=0, eos_token_id=1, pad_token_id=None)
CROSSING = {**SIZES, "hidden_size": 96}
MODELS = {
    "llama_crossing": LlamaConfig(**CROSSING, intermediate_size=80),
    "qwen3_moe_crossing": Qwen3MoeConfig(**CROSSING, head_dim=24, intermediate_size=96, moe_intermediate_size=80,
                                         num_experts=6, num_experts_per_tok=2, norm_topk_prob=True),
    "qwen3_moe": Qwen3MoeConfig(**SIZES, head_dim=16, intermediate_size=128, moe_intermediate_size=128, num_experts=6,
                                num_experts_per_tok=2, norm_topk_prob=True),
    "mixtral": MixtralConfig(**SIZES, intermediate_size=128, num_local_experts=4, num_experts_per_tok=2),
    "gpt_oss": GptOssConfig(**SIZES, head_dim=16, intermediate_size=128, num_local_experts=4, num_experts_per_tok=2,
                            sliding_window=24, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
}
ROW = 64


def rows():
    torch.manual_seed(2)
    return torch.randint(2, 512, (2, ROW)).tolist()


def nf4(matrix):
    """What bitsandbytes dequantises a matrix [out, in] to."""
    quantised, state = bnb.quantize_4bit(matrix.contiguous(), blocksize=64, compress_statistics=True, quant_type="nf4")
    absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    codes = torch.stack([quantised.flatten() >> 4, quantised.flatten() & 15], 1).flatten()[: matrix.numel()].long()
    values = (state.code[codes] * absmax.repeat_interleave(64)[: matrix.numel()]).to(matrix.dtype).reshape(matrix.shape)
    theirs = bnb.dequantize_4bit(quantised, state).to(matrix.dtype)
    assert matrix.shape[-1] % 64 or torch.equal(values, theirs)
    return values


def in_nf4(name, tensor):
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")):  # gpt-oss: [experts, in, out]
        return torch.stack([nf4(m.T).T.contiguous() for m in tensor])
    linear = name.endswith(".weight") and tensor.dim() == 2
    others = ("embed_tokens", "lm_head", ".gate.weight", ".router.weight")
    return nf4(tensor) if linear and not any(o in name for o in others) else tensor


def as_bitsandbytes_saves(tensors):
    """A folder of transformers 4, where each matrix of an expert is a linear module."""
    saved = {}
    for name, tensor in tensors.items():
        if in_nf4(name, tensor) is tensor:
            saved[name] = tensor
            continue
        codes, state = bnb.quantize_4bit(tensor.contiguous(), blocksize=64, compress_statistics=True, quant_type="nf4")
        saved[name] = codes
        saved.update({f"{name}.{part}": value.contiguous() for part, value in state.as_dict(packed=True).items()})
    return saved


def write(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))


def losses(temper, model, *more):
    out = model.parent / "run"
    subprocess.run([temper, "train", "--model", model, "--data", model.parent / "rows.jsonl", "--output_dir", out,
                    "--overwrite", "--max_seq_len", str(ROW), "--max_steps", "3", "--learning_rate", "1e-3",
                    "--warmup_steps", "0", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1",
                    "--dtype", "bf16", "--rates", "typical", "--tensorboard", "false", "--threads", "2", *more],
                   check=True, capture_output=True)
    steps = [json.loads(line) for line in open(out / "metrics.jsonl")]
    return [s["loss"] for s in steps if "loss" in s]


def compare(temper, folder, kept, options):
    (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows()))
    ours, theirs = losses(temper, folder / kept, *options), losses(temper, folder / "values")
    model = AutoModelForCausalLM.from_pretrained(folder / "values", dtype=torch.float32)
    ids = torch.tensor(rows())
    with torch.no_grad():
        f32 = model(input_ids=ids, labels=ids).loss.item()
    print(f"{folder.name} {kept}: {'the same losses' if ours == theirs else 'OTHER LOSSES'} {ours} {theirs}; "
          f"transformers in f32 {f32:.6f}, apart by {abs(f32 - ours[0]) / f32:.1e}")


def main():
    temper, folder, only = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3:]
    for name, config in MODELS.items():
        if only and name not in only:
            continue
        torch.manual_seed(1)
        at = folder / f"{name}_nf4"
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(at / "original")
        tensors = load_file(at / "original/model.safetensors")
        config_json = json.loads((at / "original/config.json").read_text())
        write(at / "values", {n: in_nf4(n, t) for n, t in tensors.items()}, config_json)
        compare(temper, at, "original", ["--base_dtype", "nf4"])
        if name == "gpt_oss":  # whose experts were no linear modules
            continue
        quantised = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                     "bnb_4bit_use_double_quant": True}
        write(at / "saved", as_bitsandbytes_saves(tensors), {**config_json, "quantization_config": quantised})
        compare(temper, at, "saved", [])
    if only:
        return
    # gpt-oss as it is published: random blocks, scales around the size of such weights.
    at = folder / "gpt_oss_mxfp4"
    packed, values = {}, {}
    for name, tensor in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[name] = values[name] = tensor
            continue
        experts, ins, outs = tensor.shape
        blocks = torch.randint(0, 256, (experts, outs, ins // 32, 16), dtype=torch.uint8)
        scales = torch.randint(120, 126, (experts, outs, ins // 32), dtype=torch.uint8)
        packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
        values[name] = convert_moe_packed_tensors(blocks, scales).contiguous()
        assert values[name].shape == tensor.shape
    write(at / "values", values, config_json)
    write(at / "mxfp4", packed, {**config_json, "quantization_config": {"quant_method": "mxfp4"}})
    compare(temper, at, "mxfp4", [])


if __name__ == "__main__":
    main()
