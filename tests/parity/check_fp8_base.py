#!/usr/bin/env python3
"""By hand: a frozen base whose files have it in FP8, beside what transformers dequantises it to.

    check_fp8_base.py TEMPER FOLDER

Makes small random models in FOLDER as they are published in FP8 (blocks of 128 x 128), and once more as transformers loads
them on a CPU, where it dequantises them, in bf16. Steps of LoRA on both must have the same losses to the last digit. Prints
whether they do, and what transformers in bf16 and f32 makes of the second folder's first batch; then exports an adapter on
q_proj and v_proj, which leaves the rest in FP8, and compares the logits that transformers gets from it and from the same
export of the second folder.
"""
import json
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config, Qwen3MoeConfig

from check_experts_base import ROW, losses, rows

SIZES = dict(vocab_size=512, hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=64, max_position_embeddings=256, initializer_range=0.1, bos_token_id=0,
             eos_token_id=1, pad_token_id=None)
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=True),
    "qwen3_moe": Qwen3MoeConfig(**SIZES, moe_intermediate_size=128, num_experts=6, num_experts_per_tok=2,
                                norm_topk_prob=True),
}
LEFT = ["lm_head", "model.layers.1.self_attn.o_proj"] + [f"model.layers.{i}.mlp.gate" for i in range(2)]
BLOCK = 128


def in_fp8(matrix):
    """Elements and scales, so that the largest magnitude of a block is 448."""
    r, c = matrix.shape
    blocks = matrix.float().reshape(r // BLOCK, BLOCK, c // BLOCK, BLOCK)
    scales = blocks.abs().amax(dim=(1, 3)) / 448
    elements = (blocks / scales[:, None, :, None]).reshape(r, c).to(torch.float8_e4m3fn)
    return elements, scales


def write(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))


def separate(name, tensor):
    """The tensors of a stack of experts as they are published: one for each matrix."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {name: tensor}
    prefix, out = name.rpartition(".")[0], {}
    for i, matrix in enumerate(tensor):
        parts = zip(("gate_proj", "up_proj"), matrix.chunk(2)) if "gate_up" in name else [("down_proj", matrix)]
        out.update({f"{prefix}.{i}.{part}.weight": m.contiguous() for part, m in parts})
    return out


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.no_grad():
        return model(input_ids=torch.tensor(rows())).logits.float()


def main():
    temper, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    for name, config in MODELS.items():
        torch.manual_seed(1)
        at = folder / name
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(at / "original")
        config_json = json.loads((at / "original/config.json").read_text())
        tensors = {}
        for stored, tensor in load_file(at / "original/model.safetensors").items():
            for n, t in separate(stored, tensor).items():
                module = n.removesuffix(".weight")
                if n.endswith("_proj.weight") and module not in LEFT:
                    tensors[n], tensors[n + "_scale_inv"] = in_fp8(t)
                else:
                    tensors[n] = t
        quantisation = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                        "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": LEFT}
        write(at / "fp8", tensors, {**config_json, "quantization_config": quantisation})
        model = AutoModelForCausalLM.from_pretrained(at / "fp8", dtype=torch.bfloat16)
        values = {n: t.contiguous() for n, t in model.state_dict().items()}
        if config_json.get("tie_word_embeddings"):
            del values["lm_head.weight"]
        write(at / "values", {n: t for v in values.items() for n, t in separate(*v).items()}, config_json)
        (at / "rows.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows()))
        ours, theirs = losses(temper, at / "fp8"), losses(temper, at / "values")
        print(f"{name}: {'the same losses' if ours == theirs else 'OTHER LOSSES'} {ours} {theirs}")
        ids = torch.tensor(rows())
        for dtype in (torch.bfloat16, torch.float32):
            model = AutoModelForCausalLM.from_pretrained(at / "values", dtype=dtype)
            with torch.no_grad():
                loss = model(input_ids=ids, labels=ids).loss.item()
            print(f"  transformers in {dtype}: {loss:.6f}, apart by {abs(loss - ours[0]) / loss:.1e}")
        for kept in ("fp8", "values"):
            losses(temper, at / kept, "--lora.target_modules", "q_proj,v_proj")
            subprocess.run([temper, "export", "--model", at / "run", "--output_dir", at / f"{kept}_merged", "--overwrite"],
                           check=True, capture_output=True)
        merged = load_file(at / "fp8_merged/model.safetensors")
        in_format = sum(t.dtype == torch.float8_e4m3fn for t in merged.values())
        same = torch.equal(logits(at / "fp8_merged"), logits(at / "values_merged"))
        print(f"  merged: {in_format} tensors in FP8, {'the same logits' if same else 'OTHER LOGITS'}")


if __name__ == "__main__":
    main()
