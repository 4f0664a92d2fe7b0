#!/usr/bin/env python3
"""Goldens for the safetensors reader and writer, from the format's own library (pip install 'safetensors>=0.8' numpy).

  make_goldens.py           writes golden.safetensors and verdicts.json beside this script
  make_goldens.py --check F loads F from Temper's writer (safetensors_golden_test.cc with TEMPER_KEEP_GOLDEN=F),
                            and compares every value; exits with 1 if one differs

golden.safetensors holds one tensor of each type; element k is value(k). verdicts.json holds small files, most of them
damaged, and whether the library opens each.
"""
import argparse
import json
import os
import struct
import sys
import tempfile

import numpy as np
import safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
METADATA = {"format": "pt", "made by": "make_goldens.py", "quote \"\u00e9\"": "line\nbreak"}
# name -> (dtype, shape)
TENSORS = {
    "model.embed.weight": ("BF16", [6, 5]),
    "model.norm.weight": ("F32", [7]),
    "h.\u00e9": ("F16", [3, 1, 5]),
    "scalar": ("F32", []),
    "empty": ("F32", [0, 4]),
    "d": ("F64", [2, 2]),
    "ids": ("I64", [4]),
    "i32": ("I32", [3]),
}


def value(k):
    """Exact in every type; whole for integers."""
    return (k * 37 % 101 - 50) / 8


def data(dtype, shape):
    n = int(np.prod(shape, dtype=np.int64))
    x = np.array([value(k) for k in range(n)], dtype=np.float64)
    if dtype == "BF16":
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if dtype in ("I64", "I32"):
        x = x * 8
    return x.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}[dtype]).tobytes()


def write_golden(path):
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
    buffers = {name: np.frombuffer(data(dtype, shape), np.uint8).copy() for name, (dtype, shape) in TENSORS.items()}
    specs = {
        name: safetensors.TensorSpec(dtype=names[dtype], shape=shape, data_ptr=buffers[name].ctypes.data,
                                     data_len=buffers[name].nbytes)
        for name, (dtype, shape) in TENSORS.items()
    }
    with open(path, "wb") as f:
        f.write(safetensors.serialize(specs, metadata=METADATA))


def check(path):
    with open(path, "rb") as f:
        raw = f.read()
    loaded = dict(safetensors.deserialize(raw))
    with safetensors.safe_open(path, framework="np") as f:
        metadata = f.metadata()
        keys = set(f.keys())
    assert metadata == METADATA, metadata
    assert keys == set(loaded) == set(TENSORS), keys
    for name, (dtype, shape) in TENSORS.items():
        entry = loaded[name]
        assert entry["dtype"] == dtype and list(entry["shape"]) == shape, (name, entry["dtype"], entry["shape"])
        assert bytes(entry["data"]) == data(dtype, shape), name
    print(f"{path}: all {len(TENSORS)} tensors and the metadata are right")


def file_of(header, payload=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **extra):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **extra}


def cases():
    eight = b"12345678"
    yield "good", file_of({"w": entry()}, eight)
    yield "empty object", file_of({})
    yield "padded", file_of(b"{}   ")
    yield "leading space", file_of(b" {}")
    yield "leading newline", file_of(b"\n{}")
    yield "empty file", b""
    yield "seven bytes", b"1234567"
    yield "length beyond file", file_of(b"{}", length=3)
    yield "length shorter than header", file_of({"w": entry()}, eight, length=10)
    yield "length huge", file_of(b"{}", length=2**64 - 1)
    yield "length beyond limit", file_of(b"{}", length=100_000_001)
    yield "array", file_of(b"[]")
    yield "text behind", file_of(b"{} x")
    yield "zero behind", file_of(b"{}\0")
    yield "not utf-8", file_of(b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', eight)
    yield "truncated", file_of({"w": entry()}, eight[:7])
    yield "behind", file_of({"w": entry()}, eight + b"x")
    yield "data without tensors", file_of({}, b"x")
    yield "hole at start", file_of({"w": entry(shape=[1], offsets=[4, 8])}, eight)
    yield "hole between", file_of({"a": entry("U8", [2], [0, 2]), "b": entry("U8", [5], [3, 8])}, eight)
    yield "overlap", file_of({"a": entry("U8", [4], [0, 4]), "b": entry("U8", [5], [3, 8])}, eight)
    yield "same place", file_of({"a": entry("U8", [8], [0, 8]), "b": entry("U8", [8], [0, 8])}, eight)
    yield "empty tensor inside", file_of({"a": entry("U8", [8], [0, 8]), "b": entry("U8", [0], [4, 4])}, eight)
    yield "empty tensor at start", file_of({"a": entry("U8", [8], [0, 8]), "b": entry("U8", [0], [0, 0])}, eight)
    yield "empty tensor at end", file_of({"a": entry("U8", [8], [0, 8]), "b": entry("U8", [0], [8, 8])}, eight)
    yield "out of order", file_of({"b": entry("U8", [5], [3, 8]), "a": entry("U8", [3], [0, 3])}, eight)
    yield "scalar", file_of({"w": entry(shape=[], offsets=[0, 4])}, eight[:4])
    yield "rank nine", file_of({"w": entry(shape=[1, 1, 1, 1, 2, 1, 1, 1, 1])}, eight)
    yield "wrong size", file_of({"w": entry(shape=[3])}, eight)
    yield "end before begin", file_of({"w": entry(offsets=[8, 0])}, eight)
    yield "negative offset", file_of({"w": entry(offsets=[-8, 0])}, eight)
    yield "one offset", file_of({"w": entry(offsets=[8])}, eight)
    yield "three offsets", file_of({"w": entry(offsets=[0, 8, 8])}, eight)
    yield "negative dim", file_of({"w": entry(shape=[-2])}, eight)
    yield "fractional dim", file_of({"w": entry(shape=[2.0])}, eight)
    yield "string dim", file_of({"w": entry(shape=["2"])}, eight)
    yield "shape overflows", file_of({"w": entry(shape=[2**32, 2**32, 4])}, eight)
    yield "dim of 64 bits", file_of({"w": entry(shape=[2**64 - 1])}, eight)
    yield "dim beyond 64 bits", file_of({"w": entry(shape=[2**64])}, eight)
    yield "unknown dtype", file_of({"w": entry("Q4_K")}, eight)
    yield "lower-case dtype", file_of({"w": entry("f32")}, eight)
    for dtype, bits in [("F64", 64), ("F32", 32), ("F16", 16), ("BF16", 16), ("I64", 64), ("I32", 32), ("I16", 16),
                        ("I8", 8), ("U64", 64), ("U32", 32), ("U16", 16), ("U8", 8), ("BOOL", 8), ("C64", 64),
                        ("F8_E5M2", 8), ("F8_E4M3", 8), ("F8_E8M0", 8), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8),
                        ("F6_E2M3", 6), ("F6_E3M2", 6), ("F4", 4)]:
        shape = [4 * 64 // bits // 4] if 64 % bits == 0 else [4]
        size = shape[0] * bits // 8
        yield f"dtype {dtype}", file_of({"w": entry(dtype, shape, [0, size])}, b"\0" * size)
    yield "half byte", file_of({"w": entry("F4", [3], [0, 1])}, b"x")
    yield "no dtype", file_of({"w": {"shape": [2], "data_offsets": [0, 8]}}, eight)
    yield "no shape", file_of({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, eight)
    yield "no offsets", file_of({"w": {"dtype": "F32", "shape": [2]}}, eight)
    yield "tensor is null", file_of({"w": None})
    yield "tensor is number", file_of({"w": 3})
    yield "unknown key", file_of({"w": entry(note={"a": [1, {}]})}, eight)
    yield "dtype twice", file_of(b'{"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', eight)
    yield "tensor twice", file_of(b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
                                  b'"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}', eight)
    yield "metadata", file_of({"__metadata__": {"a": "b"}})
    yield "metadata is null", file_of({"__metadata__": None})
    yield "metadata is string", file_of({"__metadata__": "pt"})
    yield "metadata holds number", file_of({"__metadata__": {"epoch": 3}})
    yield "metadata key twice", file_of(b'{"__metadata__":{"a":"1","a":"2"}}')
    yield "metadata twice", file_of(b'{"__metadata__":{},"__metadata__":{}}')
    yield "empty name", file_of({"": entry()}, eight)


def opens(content):
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as f:
        f.write(content)
        f.flush()
        try:
            with safetensors.safe_open(f.name, framework="np") as opened:
                opened.keys()
            return True
        except Exception:
            return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="FILE")
    args = parser.parse_args()
    if args.check:
        check(args.check)
        return
    write_golden(os.path.join(HERE, "golden.safetensors"))
    rows = [{"name": name, "hex": content.hex(), "opens": opens(content)} for name, content in cases()]
    with open(os.path.join(HERE, "verdicts.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main())
