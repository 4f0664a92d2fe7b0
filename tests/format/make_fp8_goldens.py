#!/usr/bin/env python3
"""Writes fp8.safetensors: weights in FP8 as DeepSeek publishes them, and the bits of what they dequantise to.

"whole" and "bf16_scales" are of whole blocks of 128 x 128: transformers' own Fp8Dequantize gives their numbers. "partial"
has blocks that its shape cuts, as DeepSeek-V3's own have (transformers refuses those, or takes smaller blocks): its
numbers are the same formula in torch, element * scale of its block in f32, then bf16.

Made with transformers 5.24.0 and torch 2.15.0 on a CPU: python3 make_fp8_goldens.py
"""
import pathlib

import safetensors.torch
import torch
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

torch.manual_seed(1)
BLOCK = 128


def quantised(rows, columns, dtype):
    scales = (torch.rand(-(-rows // BLOCK), -(-columns // BLOCK)) * 2e-4 + 1e-5).to(dtype)
    # Every element that is a number, and random ones.
    bits = torch.randint(0, 256, (rows, columns), dtype=torch.uint8)
    bits[(bits & 0x7F) == 0x7F] = 0x80
    return bits.view(torch.float8_e4m3fn), scales


def hash_of(values):
    """FNV-1a over the bits of bf16 values, in order."""
    h = 0xCBF29CE484222325
    for bits in values.contiguous().view(torch.int16).flatten().tolist():
        h = (h ^ (bits & 0xFFFF)) * 0x100000001B3 % 2**64
    return str(h)


def formula(elements, scales):
    rows, columns = elements.shape
    grid = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:rows, :columns]
    return (elements.float() * grid).bfloat16()


tensors, hashes = {}, {}
for name, (rows, columns, dtype) in {"whole": (128, 256, torch.float32), "bf16_scales": (128, 128, torch.bfloat16),
                                     "partial": (130, 72, torch.float32)}.items():
    elements, scales = quantised(rows, columns, dtype)
    values = formula(elements, scales)
    if name != "partial":
        theirs = Fp8Dequantize(None)._dequantize_one(elements, scales, torch.bfloat16)
        assert torch.equal(theirs, values)
        values = theirs
    tensors[name + ".weight"], tensors[name + ".weight_scale_inv"] = elements, scales
    hashes[name] = hash_of(values)
    seen = set(elements.view(torch.uint8).flatten().tolist())
    assert name == "partial" or len(seen) == 254

path = pathlib.Path(__file__).parent / "fp8.safetensors"
safetensors.torch.save_file(tensors, path, metadata=hashes)
print(hashes, path.stat().st_size, "bytes")
