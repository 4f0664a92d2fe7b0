#!/usr/bin/env python3
"""Writes groups.safetensors: weights in 4 and 8 bits as other tools publish them, and the bits in f32 of what they
dequantise to.

- packed*: compressed-tensors' own compressor packs and dequantises them (pack-quantized; groups of 32, whole rows, with
  and without zeros); float_*, int_*: its quantize and dequantize (float-quantized, int-quantized, per row and for all).
- gptq*, awq: packed and dequantised here by the formulas that the tools publish. GPTQ (AutoGPTQ's QuantLinear.pack):
  eight rows of an [in, out] matrix in a word, first lowest; words of qzeros are the zeros' less 0x11111111 (gptqmodel); w = scale * (q - zero) with
  the group of a column in g_idx. AWQ (AutoAWQ's WQLinear_GEMM): eight columns in a word, in the order 0, 2, 4, 6, 1, 3, 5,
  7; zeros likewise.
- bnb: bitsandbytes' int8_vectorwise_quant and int8_vectorwise_dequant.

Made with compressed-tensors 0.20.1, bitsandbytes 0.50.2 and torch 2.15.0 on a CPU: python3 make_group_goldens.py
"""
import pathlib

import bitsandbytes.functional as bnb
import safetensors.torch
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize

torch.manual_seed(4)
tensors, hashes = {}, {}


def add(name, parts, values):
    """FNV-1a over the bits of the values in f32, in order."""
    for part, tensor in parts.items():
        tensors[f"{name}.{part}"] = tensor.contiguous()
    h = 0xCBF29CE484222325
    for bits in values.float().contiguous().view(torch.int32).flatten().tolist():
        h = (h ^ (bits & 0xFFFFFFFF)) * 0x100000001B3 % 2**64
    hashes[name] = str(h)


def scales(*shape, dtype):
    return (torch.rand(shape) * 0.05 + 1e-3).to(dtype)


def words(x):
    """[rows, n] of 0..15 -> [rows, n / 8] int32, the first lowest."""
    rows, n = x.shape
    shifts = torch.arange(0, 32, 4)
    packed = (x.long().reshape(rows, n // 8, 8) << shifts).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def compressed(name, rows, columns, group, symmetric, dtype):
    args = dict(num_bits=4, type="int", symmetric=symmetric, strategy="group" if group else "channel")
    if group:
        args["group_size"] = group
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    groups = columns // group if group else 1
    state = {"weight": torch.randn(rows, columns).to(dtype) * 0.2, "weight_scale": scales(rows, groups, dtype=dtype)}
    if not symmetric:
        state["weight_zero_point"] = torch.randint(-8, 8, (rows, groups), dtype=torch.int8)
    packed = PackedQuantizationCompressor.compress(state, scheme)
    values = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    assert values.dtype == dtype
    packed.pop("weight", None)
    add(name, packed, values)


def elements(name, kind, strategy, rows, columns):
    args = QuantizationArgs(num_bits=8, type=kind, symmetric=True, strategy=strategy)
    scale = scales(*((rows, 1) if strategy == "channel" else (1,)), dtype=torch.bfloat16)
    weight = torch.randn(rows, columns).bfloat16() * 3
    zero = torch.zeros_like(scale, dtype=torch.int8 if kind == "int" else torch.bfloat16)
    q = quantize(weight, scale, zero, args, dtype=torch.float8_e4m3fn if kind == "float" else torch.int8)
    values = dequantize(q, scale, None, args)
    assert values.dtype == torch.bfloat16
    add(name, {"weight": q, "weight_scale": scale, "input_scale": torch.ones(1)}, values)


def less_ones(x):
    """As gptqmodel stores zeros: a zero of 0 borrows from its neighbour in the word."""
    x = (x.long() - 0x11111111) & 0xFFFFFFFF
    return torch.where(x < 1 << 31, x, x - (1 << 32)).int()


def gptq(name, rows, columns, group, order):
    q = torch.randint(0, 16, (columns, rows))
    zeros = torch.randint(0, 16, (columns // group, rows))
    scale = scales(columns // group, rows, dtype=torch.float16)
    g_idx = torch.arange(columns) // group
    if order:
        g_idx = g_idx[torch.randperm(columns)]
    values = scale[g_idx] * (q - zeros[g_idx]).half()
    add(name, {"qweight": words(q.T).T, "qzeros": less_ones(words(zeros)), "scales": scale, "g_idx": g_idx.to(torch.int32)},
        values.T)


def awq(name, rows, columns, group):
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

    def interleaved(x):
        return words(x.reshape(x.shape[0], -1, 8)[:, :, order].reshape(x.shape))

    q = torch.randint(0, 16, (columns, rows))
    zeros = torch.randint(0, 16, (columns // group, rows))
    scale = scales(columns // group, rows, dtype=torch.float16)
    g_idx = torch.arange(columns) // group
    values = scale[g_idx] * (q - zeros[g_idx]).half()
    add(name, {"qweight": interleaved(q), "qzeros": interleaved(zeros), "scales": scale}, values.T)


compressed("packed", 24, 96, 32, True, torch.bfloat16)
compressed("packed_zeros", 24, 256, 128, False, torch.float16)
compressed("packed_rows", 16, 72, 0, True, torch.bfloat16)
elements("float_rows", "float", "channel", 8, 160)
elements("float_all", "float", "tensor", 8, 160)
elements("int_rows", "int", "channel", 8, 80)
elements("int_all", "int", "tensor", 8, 80)
gptq("gptq", 24, 128, 64, False)
gptq("gptq_order", 24, 128, 64, True)
gptq("gptq_rows", 16, 72, 72, False)
awq("awq", 24, 128, 32)
weight = torch.randn(8, 80).half()
quantised, of_rows, _ = bnb.int8_vectorwise_quant(weight)
add("bnb", {"weight": quantised, "SCB": of_rows, "weight_format": torch.tensor(0, dtype=torch.uint8)},
    bnb.int8_vectorwise_dequant(quantised, of_rows).bfloat16())

path = pathlib.Path(__file__).parent / "groups.safetensors"
safetensors.torch.save_file(tensors, path, metadata=hashes)
print(hashes, path.stat().st_size, "bytes")
