#!/usr/bin/env python3
"""Prints the constants of src/format/gguf/block_format_test.cc and gguf_writer_test.cc: hashes of what ggml's quantiser
and the gguf package write. Needs numpy, gguf, llama-cpp-python (pip)."""

import ctypes
import pathlib
import tempfile

import gguf
import llama_cpp
import numpy as np

BLOCKS = {"q8_0": 8, "q5_0": 6, "q5_1": 7, "q4_k": 12, "q5_k": 13, "q6_k": 14}  # ggml.h, enum ggml_type
N = 64 * 256


def numbers(seed):
    """The test's: a linear congruence, made into floats of several sizes by exact steps."""
    x = np.empty(N, np.float32)
    state = seed
    for i in range(N):
        state = (state * 1664525 + 1013904223) % 2**32
        block = i // 256
        size = np.float32(2.0 ** ((block % 16) - 12))
        value = np.float32((state >> 9) - 2**22) * np.float32(2.0**-22) * size
        x[i] = 0 if block % 7 == 3 and i % 3 else value
    return x


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def main():
    base = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    base.ggml_quantize_chunk.restype = ctypes.c_size_t
    base.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [
        ctypes.c_void_p]
    x = numbers(1)
    for name, kind in BLOCKS.items():
        out = np.zeros(N * 4, np.uint8)
        size = base.ggml_quantize_chunk(kind, x.ctypes.data, out.ctypes.data, 0, N // 256, 256, None)
        print(f'{{"{name}", 0x{fnv(out[:size].tobytes()):016x}}},')
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "w.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint32("llama.block_count", 2)
        writer.add_float32("llama.rope.freq_base", 10000.0)
        writer.add_bool("tokenizer.ggml.add_bos_token", True)
        writer.add_int32("a.number", -3)
        writer.add_array("tokenizer.ggml.tokens", ["a", "▁b", "c d"])
        writer.add_array("tokenizer.ggml.scores", [0.5, -1.0])
        writer.add_array("tokenizer.ggml.token_type", [1, 2, 3])
        writer.add_array("llama.attention.sliding_window_pattern", [True, False])
        writer.add_tensor("token_embd.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
        writer.add_tensor("output_norm.weight", np.arange(3, dtype=np.float32))
        writer.add_tensor("blk.0.ffn_up.weight", np.arange(8, dtype=np.float16).reshape(2, 4))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        data = path.read_bytes()
        print(f"writer: {len(data)} bytes, 0x{fnv(data):016x}")


main()
