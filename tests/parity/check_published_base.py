#!/usr/bin/env python3
"""LoRA on bases that other tools have quantised, beside the numbers that they dequantise to. For each kind a small Llama is
written twice: packed by the formulas of tests/format/make_group_goldens.py, and in bf16. Losses of three steps must be the
same to the last digit: bf16 rounds scale * (q - zero) once, as kernels do.

By hand: python3 tests/parity/check_published_base.py PROGRAM DATA.jsonl TOKENIZER_FOLDER WORK_FOLDER
"""
import json
import pathlib
import shutil
import subprocess
import sys

import safetensors.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM

PROGRAM, DATA, TOKENIZER, WORK = sys.argv[1:]
WORK = pathlib.Path(WORK)
ORDER = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])


def words(x):
    rows, n = x.shape
    packed = (x.long().reshape(rows, n // 8, 8) << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32).contiguous()


def interleaved(x):
    return words(x.reshape(x.shape[0], -1, 8)[:, :, ORDER].reshape(x.shape))


def grouped(w, group):
    """Elements, zeros, scales (f16) [out, groups], and the numbers."""
    blocks = w.float().reshape(w.shape[0], -1, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    scale = ((high - low) / 15).clamp(min=1e-4).half()
    zero = (-low / scale.float()).round().clamp(1, 15)
    q = ((blocks / scale.float()[..., None]).round() + zero[..., None]).clamp(0, 15)
    numbers = ((q - zero[..., None]) * scale.float()[..., None]).reshape(w.shape)
    return q.reshape(w.shape).int(), zero.int(), scale, numbers.bfloat16()


def gptq(name, w, order=None):
    q, zero, scale, numbers = grouped(w, 64)
    g_idx = torch.arange(w.shape[1]) // 64
    if order is not None:  # columns lie elsewhere
        q, g_idx, numbers = q[:, order], g_idx[order], numbers[:, order]
    return {name + ".qweight": words(q).T.contiguous(), name + ".qzeros": words(zero.T.contiguous() - 1),
            name + ".scales": scale.T.contiguous(), name + ".g_idx": g_idx.int()}, numbers


def awq(name, w):
    q, zero, scale, numbers = grouped(w, 128)
    return {name + ".qweight": interleaved(q.T.contiguous()), name + ".qzeros": interleaved(zero.T.contiguous()),
            name + ".scales": scale.T.contiguous()}, numbers


def packed(name, w):
    q, zero, scale, numbers = grouped(w, 32)
    return {name + ".weight_packed": words(q), name + ".weight_scale": scale,
            name + ".weight_zero_point": words(zero.T.contiguous()).T.contiguous(),
            name + ".weight_shape": torch.tensor(w.shape)}, numbers


def float8(name, w):
    scale = (w.float().abs().amax(1, keepdim=True) / 448).bfloat16()
    q = (w.float() / scale.float()).to(torch.float8_e4m3fn)
    return {name + ".weight": q, name + ".weight_scale": scale}, (q.float() * scale.float()).bfloat16()


def float8_all(name, w):
    scale = w.float().abs().max() / 448
    q = (w.float() / scale).to(torch.float8_e4m3fn)
    return {name + ".weight": q, name + ".weight_scale_inv": scale}, (q.float() * scale).bfloat16()


def int8(name, w):
    scale = (w.float().abs().amax(1, keepdim=True) / 127).bfloat16()
    q = (w.float() / scale.float()).round().clamp(-128, 127).to(torch.int8)
    return {name + ".weight": q, name + ".weight_scale": scale}, (q.float() * scale.float()).bfloat16()


def bitsandbytes(name, w):
    most = w.float().abs().amax(1)
    q = (w.float() / most[:, None] * 127).round().to(torch.int8)
    return {name + ".weight": q, name + ".SCB": most, name + ".weight_format": torch.tensor(0, dtype=torch.uint8)}, (
        q.float() * (most[:, None] * torch.tensor(1 / 127, dtype=torch.float32))).bfloat16()


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head", "re:.*layers\\.1\\.mlp.*"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"symmetric": True, **weights}}}}


KINDS = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": False}),
    "gptq_order": (lambda name, w: gptq(name, w, torch.randperm(w.shape[1])),
                   {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True, "sym": False}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True,
                  "modules_to_not_convert": ["layers.1.mlp"]}),
    "packed": (packed, compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32)),
    "float8": (float8, compressed("float-quantized", num_bits=8, type="float", strategy="channel")),
    "float8_all": (float8_all, {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}),
    "int8": (int8, compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "bitsandbytes": (bitsandbytes, {"quant_method": "bitsandbytes", "load_in_8bit": True,
                                    "llm_int8_skip_modules": ["lm_head"]}),
}


def losses(model, *options):
    out = WORK / "out"
    shutil.rmtree(out, ignore_errors=True)
    run = subprocess.run([PROGRAM, "train", "--model", str(model), "--data", DATA, "--output_dir", str(out), "--method",
                          "lora", "--max_steps", "3", "--max_seq_len", "64", "--logging_steps", "1", "--dtype", "bf16",
                          "--learning_rate", "1e-3", "--threads", "1", *options], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{model}: {run.stderr}")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def main():
    torch.manual_seed(1)
    tokenizer = json.loads((pathlib.Path(TOKENIZER) / "config.json").read_text())
    config = LlamaConfig(vocab_size=tokenizer["vocab_size"], hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                         tie_word_embeddings=False, dtype="bfloat16")
    model = LlamaForCausalLM(config).bfloat16()
    state = {k: v.contiguous() for k, v in model.state_dict().items()}
    for kind, (pack, quantisation) in KINDS.items():
        left = "layers.1.mlp" if "layers" in json.dumps(quantisation) else None
        kept, plain = {}, dict(state)
        for name, w in state.items():
            if not name.endswith("_proj.weight") or (left and left in name):
                kept[name] = w
                continue
            parts, plain[name] = pack(name.removesuffix(".weight"), w)
            kept.update(parts)
        for folder, tensors in ((WORK / kind, kept), (WORK / (kind + "_plain"), plain)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for file in pathlib.Path(TOKENIZER).iterdir():
                if "token" in file.name:
                    shutil.copy(file, folder)
            text = config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
            if tensors is kept:
                text["quantization_config"] = quantisation
            (folder / "config.json").write_text(json.dumps(text))
            safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors",
                                        metadata={"format": "pt"})
        own, want = losses(WORK / kind), losses(WORK / (kind + "_plain"))
        print(kind, own, "same" if own == want else f"OTHER: {want}")


main()
