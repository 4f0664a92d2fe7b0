#!/usr/bin/env python3
"""Kernels that Triton compiles for sm_90 and sm_80, their operands and what numpy says of them: what the machine that
runs PTX (ptx_machine.h) is held to, because this code is known to be right on GPUs. Needs triton (3.9), no GPU.
  python3 tests/device/cuda/triton_kernels.py FOLDER
  TEMPER_TRITON_KERNELS=FOLDER build/temper_ptx_tests --gtest_filter=PtxTriton.*
Each kernel is a folder: kernel.ptx; launch.txt (name, blocks, threads, bytes of shared memory, tolerance, then the
parameters: "in FILE", "out FILE" with what is expected, "word N"); the files hold f32 or bf16 as they are.
"""
import os
import sys

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BF16 = "bf16"


def to_bf16_bits(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def rounded(x):
    return (to_bf16_bits(x).astype(np.uint32) << 16).view(np.float32)


@triton.jit
def matmul(a, b, c, M, N, K, b_row, b_column, R: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * R + tl.arange(0, R)
    columns = tl.program_id(1) * C + tl.arange(0, C)
    depth = tl.arange(0, D)
    sums = tl.zeros((R, C), tl.float32)
    for k in range(0, K, D):
        x = tl.load(a + rows[:, None] * K + k + depth[None, :], mask=(rows < M)[:, None], other=0.0)
        y = tl.load(b + (k + depth)[:, None] * b_row + columns[None, :] * b_column)
        sums = tl.dot(x, y, sums)
    tl.store(c + rows[:, None] * N + columns[None, :], sums, mask=(rows < M)[:, None])


@triton.jit
def matmul_of_rows(a, b, c, M, N, K, R: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    """b [N, K]."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    columns = tl.program_id(1) * C + tl.arange(0, C)
    depth = tl.arange(0, D)
    sums = tl.zeros((R, C), tl.float32)
    for k in range(0, K, D):
        x = tl.load(a + rows[:, None] * K + k + depth[None, :], mask=(rows < M)[:, None], other=0.0)
        y = tl.load(b + columns[:, None] * K + k + depth[None, :])
        sums = tl.dot(x, tl.trans(y), sums)
    tl.store(c + rows[:, None] * N + columns[None, :], sums, mask=(rows < M)[:, None])


@triton.jit
def softmax(x, y, N, C: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, C)
    values = tl.load(x + row * N + columns, mask=columns < N, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * N + columns, values / tl.sum(values, 0), mask=columns < N)


@triton.jit
def attend(q, k, v, o, T, scale, R: tl.constexpr, C: tl.constexpr, E: tl.constexpr):
    """Causal attention of one head, [T, E]."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    e = tl.arange(0, E)
    x = tl.load(q + rows[:, None] * E + e[None, :])
    most = tl.full((R,), -float("inf"), tl.float32)
    sums = tl.zeros((R,), tl.float32)
    out = tl.zeros((R, E), tl.float32)
    for s in range(0, (tl.program_id(0) + 1) * R, C):
        keys = s + tl.arange(0, C)
        scores = tl.dot(x, tl.trans(tl.load(k + keys[:, None] * E + e[None, :]))) * scale
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        new_most = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp(scores - new_most[:, None])
        keep = tl.exp(most - new_most)
        sums = sums * keep + tl.sum(weights, 1)
        out = tl.dot(weights.to(tl.bfloat16), tl.load(v + keys[:, None] * E + e[None, :]), out * keep[:, None])
        most = new_most
    tl.store(o + rows[:, None] * E + e[None, :], out / sums[:, None])


def write(folder, name, fn, capability, signature, constants, arguments, grid, tolerance, warps=4, stages=3):
    """arguments: (name, "in" or "out" or "word", value)."""
    names = list(signature)
    source = ASTSource(fn=fn, signature=signature,
                       constexprs={(names.index(n),): v for n, v in constants.items()},
                       attrs={(i,): [["tt.divisibility", 16]] for i, n in enumerate(names)
                              if signature[n].startswith("*") or n in ("K", "N", "b_row")})
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32),
                              options={"num_warps": warps, "num_stages": stages})
    folder = os.path.join(folder, f"{name}_sm{capability}")
    os.makedirs(folder, exist_ok=True)
    ptx = compiled.asm["ptx"]
    with open(os.path.join(folder, "kernel.ptx"), "w") as file:
        file.write(ptx)
    units = [u for u in ("wgmma", "mma.sync", "ldmatrix", "cp.async") if u in ptx]
    with open(os.path.join(folder, "launch.txt"), "w") as file:
        print(compiled.metadata.name, *(list(grid) + [1, 1])[:3], 32 * warps, compiled.metadata.shared, tolerance,
              file=file)
        for n, kind, value in arguments:
            if kind == "word":
                bits = np.float32(value).view(np.uint32) if isinstance(value, float) else value
                print("word", bits, file=file)
                continue
            with open(os.path.join(folder, n), "wb") as data:
                data.write(np.ascontiguousarray(value).tobytes())
            print(kind, n, file=file)
    print(f"{os.path.basename(folder)}: {', '.join(units)}")


def main():
    folder = sys.argv[1]
    random = np.random.default_rng(7)

    def values(*shape):
        return rounded(random.standard_normal(shape))

    for capability in (90, 80):
        for rows, columns, depth, warps in ((64, 64, 64, 4), (128, 128, 32, 4), (128, 256, 64, 8), (64, 128, 128, 4)):
            m, n, k = rows + 40, 2 * columns, 3 * depth + depth
            a, b = values(m, k), values(k, n)
            pointers = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
            tiles = {"R": rows, "C": columns, "D": depth}
            constexprs = {t: "constexpr" for t in tiles}
            operands = [("a", "in", to_bf16_bits(a)), ("c", "out", (a @ b).astype(np.float32)), ("M", "word", m),
                        ("N", "word", n), ("K", "word", k)]
            grid = [-(-m // rows), n // columns]
            shape = f"{rows}x{columns}x{depth}"
            write(folder, f"matmul_{shape}", matmul, capability,
                  {**pointers, "b_row": "i32", "b_column": "constexpr", **constexprs}, {"b_column": 1, **tiles},
                  [operands[0], ("b", "in", to_bf16_bits(b)), *operands[1:], ("b_row", "word", n)], grid, 1e-3, warps)
            write(folder, f"matmul_of_rows_{shape}", matmul_of_rows, capability, {**pointers, **constexprs}, tiles,
                  [operands[0], ("b", "in", to_bf16_bits(b.T)), *operands[1:]], grid, 1e-3, warps)
        x = random.standard_normal((5, 1000)).astype(np.float32) * 4
        y = np.exp(x - x.max(1, keepdims=True))
        write(folder, "softmax", softmax, capability, {"x": "*fp32", "y": "*fp32", "N": "i32", "C": "constexpr"},
              {"C": 1024}, [("x", "in", x), ("y", "out", y / y.sum(1, keepdims=True)), ("N", "word", 1000)], [5], 1e-5)
        for t, e, r, c in ((192, 64, 64, 64), (256, 128, 128, 64)):
            q, k, v = values(t, e), values(t, e), values(t, e)
            scores = np.where(np.tri(t, dtype=bool), (q @ k.T) * e ** -0.5, -np.inf)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            o = weights @ v / weights.sum(1, keepdims=True)
            write(folder, f"attend_{e}", attend, capability,
                  {"q": "*bf16", "k": "*bf16", "v": "*bf16", "o": "*fp32", "T": "i32", "scale": "fp32",
                   "R": "constexpr", "C": "constexpr", "E": "constexpr"}, {"R": r, "C": c, "E": e},
                  [*((n, "in", to_bf16_bits(x)) for n, x in (("q", q), ("k", k), ("v", v))),
                   ("o", "out", o.astype(np.float32)), ("T", "word", t), ("scale", "word", float(e ** -0.5))],
                  [t // r], 3e-2)


if __name__ == "__main__":
    main()
