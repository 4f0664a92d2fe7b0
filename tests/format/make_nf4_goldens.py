#!/usr/bin/env python3
"""Writes nf4.safetensors: three weights as bitsandbytes keeps them in NF4 with double quantisation, and the bits of their
dequantised values. The weights follow from a formula, which src/checkpoint/row_quantiser_test.cc repeats.

Blocks of 64 elements run over the whole tensor. In rows of 96, whose blocks begin in one row and end in the next,
bitsandbytes' own library for CPUs (0.50.2) multiplies with the absmax of other blocks. The hash is then that of its
codes times the absmax of their blocks, as its PyTorch code has it, which it takes itself for an odd number of columns.

Made with bitsandbytes 0.50.2 and torch 2.15.0 on a CPU: python3 make_nf4_goldens.py
"""
import pathlib

import bitsandbytes.functional as bnb
import numpy as np
import safetensors.torch
import torch


def weight(rows, columns):
    """bf16, the absmax of blocks between 0.06 and 0.12, whose sum is exact in any order."""
    i = np.arange(rows * columns, dtype=np.uint64)
    number = ((i * 2654435761) % 2**32 >> 24).astype(np.float32) - 128
    scale = (64 + i // 64 * 37 % 64).astype(np.float32) / 2**17
    return torch.from_numpy(number * scale).bfloat16().reshape(rows, columns)


def hash_of(values):
    """FNV-1a over the bits of bf16 values, in order."""
    h = 0xCBF29CE484222325
    for bits in values.view(torch.int16).flatten().tolist():
        h = (h ^ (bits & 0xFFFF)) * 0x100000001B3 % 2**64
    return str(h)


def dequantised(quantised, state):
    absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    codes = torch.stack([quantised.flatten() >> 4, quantised.flatten() & 15], 1).flatten()[: state.shape.numel()]
    blocks = absmax.repeat_interleave(64)[: state.shape.numel()]
    return (state.code[codes.long()] * blocks).to(state.dtype).reshape(state.shape)


tensors, hashes = {}, {}
# Blocks within rows, in two groups; blocks that cross rows, the last one not full; the same of an even number of columns.
for name, (rows, columns) in {"whole": (40, 448), "crossing": (7, 93), "even": (7, 96)}.items():
    w = weight(rows, columns)
    quantised, state = bnb.quantize_4bit(w, blocksize=64, compress_statistics=True, quant_type="nf4")
    absmax = torch.stack([b.abs().max() for b in w.flatten().split(64)]).double()
    assert state.offset.item() == np.float32(absmax.mean().item()), "the mean depends on the order of its sum"
    tensors[name + ".weight"] = quantised
    for key, value in state.as_dict(packed=True).items():
        tensors[f"{name}.weight.{key}"] = value
    values, theirs = dequantised(quantised, state), bnb.dequantize_4bit(quantised, state)
    assert name == "even" or torch.equal(values, theirs), name
    print(f"{name}: {(values != theirs).sum()} of {values.numel()} numbers differ from bitsandbytes' own library's")
    hashes[name] = hash_of(values)

path = pathlib.Path(__file__).parent / "nf4.safetensors"
safetensors.torch.save_file(tensors, path, metadata=hashes)
print(hashes, path.stat().st_size, "bytes")
