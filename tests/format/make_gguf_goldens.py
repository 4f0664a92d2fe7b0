"""Writes golden.gguf with the gguf package: keys of all types, tensors of all types that Temper reads; and
gguf_goldens.json: for each tensor a hash of the f32 numbers that the package's dequantize gives.

    pip install gguf==0.19.0
    python tests/format/make_gguf_goldens.py
"""
import json
import os

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "golden.gguf")
TYPES = gguf.GGMLQuantizationType


def blocks(kind, shape, rng):
    """Random bits, but for scales of f16, which are small numbers."""
    per_block, size = gguf.GGML_QUANT_SIZES[kind]
    rows = int(np.prod(shape[:-1]))
    raw = rng.integers(0, 256, (rows, shape[-1] // per_block, size), dtype=np.uint8)
    scales = {TYPES.Q6_K: [size - 2], TYPES.Q8_0: [0], TYPES.Q4_0: [0], TYPES.Q5_0: [0]}.get(kind, [0, 2])
    for at in scales:
        raw[..., at:at + 2] = rng.normal(0, 0.01, raw.shape[:2]).astype(np.float16)[..., None].view(np.uint8)
    return raw.reshape(*shape[:-1], -1)


def hashed(numbers):
    h = 0xCBF29CE484222325
    for byte in np.ascontiguousarray(numbers, dtype=np.float32).tobytes():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"{h:016x}"


def main():
    rng = np.random.default_rng(47)
    writer = gguf.GGUFWriter(PATH, "golden")
    writer.add_uint8("n.u8", 200)
    writer.add_int8("n.i8", -100)
    writer.add_uint16("n.u16", 60000)
    writer.add_int16("n.i16", -30000)
    writer.add_uint32("n.u32", 4000000000)
    writer.add_int32("n.i32", -2000000000)
    writer.add_uint64("n.u64", 7)
    writer.add_uint64("n.u64_large", 2**40)
    writer.add_int64("n.i64", -7)
    writer.add_float32("n.f32", 0.25)
    writer.add_float64("n.f64", 0.5)
    writer.add_bool("n.bool", True)
    writer.add_string("n.text", "ein Wört")
    writer.add_array("n.texts", ["a", "", "▁b"])
    writer.add_array("n.numbers", [1, -2, 3])
    writer.add_array("n.floats", [0.5, -1.5])
    writer.add_array("n.flags", [True, False, True])
    hashes = {}
    numbers = rng.normal(0, 1, (3, 5)).astype(np.float32)
    for name, array in {"f32": numbers, "f16": numbers.astype(np.float16), "vector": numbers[0]}.items():
        writer.add_tensor(name, array)
        hashes[name] = hashed(array)
    bits = numbers.view(np.uint32) >> 16
    writer.add_tensor("bf16", bits.astype(np.uint16).view(np.uint8), raw_dtype=TYPES.BF16)
    hashes["bf16"] = hashed((bits << 16).view(np.float32))
    for kind in (TYPES.Q4_0, TYPES.Q4_1, TYPES.Q5_0, TYPES.Q5_1, TYPES.Q8_0, TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K):
        raw = blocks(kind, (3, 512), rng)
        name = kind.name.lower()
        writer.add_tensor(name, raw, raw_dtype=kind)
        hashes[name] = hashed(gguf.quants.dequantize(raw, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(os.path.join(HERE, "gguf_goldens.json"), "w") as f:
        json.dump({"gguf": "0.19.0", "hashes": hashes}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
