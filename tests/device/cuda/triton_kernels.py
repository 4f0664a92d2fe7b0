#!/usr/bin/env python3
"""Kernels that Triton compiles, with what they must compute: an oracle for the machine that runs PTX. Triton's code is
known to be right on GPUs, so what this machine believes of matrix units, of shared memory and of what lanes hold must
give numpy's numbers. Needs triton (3.9 was asked) and numpy, no GPU:

    python3 tests/device/cuda/triton_kernels.py FOLDER
    TEMPER_TRITON_KERNELS=FOLDER build/temper_ptx_tests --gtest_filter='Triton*'

Writes into FOLDER per case NAME.ptx, NAME.txt (what to launch: see write()), and its operands' bytes.
"""
import os
import pathlib
import re
import sys

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, A_COLUMNS: tl.constexpr,
           B_COLUMNS: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for k0 in range(0, K, STEP):
        if A_COLUMNS:
            a_tile = tl.trans(tl.load(a + (k0 + k)[:, None] * M + m[None, :]))
        else:
            a_tile = tl.load(a + m[:, None] * K + (k0 + k)[None, :])
        if B_COLUMNS:
            b_tile = tl.trans(tl.load(b + n[:, None] * K + (k0 + k)[None, :]))
        else:
            b_tile = tl.load(b + (k0 + k)[:, None] * N + n[None, :])
        total = tl.dot(a_tile, b_tile, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def attend(q, k, v, o, S, ROWS: tl.constexpr, D: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, D)
    first = tl.program_id(0) * ROWS
    q_tile = tl.load(q + (first + rows)[:, None] * D + columns[None, :])
    out = tl.zeros((ROWS, D), tl.float32)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for s in range(0, first + ROWS, ROWS):
        keys = tl.load(k + (s + rows)[:, None] * D + columns[None, :])
        scores = tl.dot(q_tile, tl.trans(keys)) * 0.125
        scores = tl.where((first + rows)[:, None] >= (s + rows)[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + (s + rows)[:, None] * D + columns[None, :])
        out = tl.dot(weights.to(tl.bfloat16), values, out * shrink[:, None])
        largest = new
    tl.store(o + (first + rows)[:, None] * D + columns[None, :], out / total[:, None])


@triton.jit
def softmax(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    values = tl.load(x + row * N + at, mask=at < N, other=float("-inf"))
    e = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * N + at, e / tl.sum(e, 0), mask=at < N)


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write(folder, name, fn, architecture, warps, operands, integers, constants, grid, expected, tolerance):
    """operands: (name, numpy array, Triton's type), the last is the result, of f32."""
    names = [o[0] for o in operands] + list(integers)
    signature = {o[0]: "*" + o[2] for o in operands} | {i: "i32" for i in integers} | {c: "constexpr" for c in constants}
    order = fn.arg_names
    assert [n for n in order if n not in constants] == names, (order, names)
    source = ASTSource(fn=fn, signature={n: signature[n] for n in order},
                       constexprs={(order.index(c),): value for c, value in constants.items()},
                       attrs={(i,): [["tt.divisibility", 16]] for i in range(len(operands))})
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": warps})
    ptx = compiled.asm["ptx"]
    (folder / f"{name}.ptx").write_text(ptx)
    for what, array, _ in operands[:-1]:
        (folder / f"{name}.{what}").write_bytes(array.tobytes())
    (folder / f"{name}.expected").write_bytes(np.ascontiguousarray(expected, np.float32).tobytes())
    kernel = re.search(r"\.entry (\w+)", ptx)[1]
    lines = [f"kernel {kernel}", f"grid {grid}", f"threads {warps * 32}", f"shared {compiled.metadata.shared}"]
    lines += [f"operand {what}" for what, _, _ in operands[:-1]] + [f"result {np.prod(expected.shape) * 4}"]
    lines += [f"integer {value}" for value in integers.values()]
    lines += [f"tolerance {tolerance}"]  # of each element, absolute
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(name, sorted(set(re.findall(r"(wgmma\.mma_async\S*|mma\.sync\S*|ldmatrix\S*|cp\.async\.c\S*|stmatrix\S*)", ptx))))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(1)
    for architecture, warps in ((80, 4), (90, 4), (90, 8)):
        for a_columns in (False, True):
            for b_columns in (False, True):
                m, n, k = (128 if warps == 8 else 64), 128, 192
                # Rows of 32 elements are swizzled otherwise; products of 256 columns are Hopper's widest.
                step, n = {(False, True): (32, 128), (True, False): (64, 256)}.get((a_columns, b_columns), (64, n))
                a, b = bf16(draw.standard_normal((m, k))), bf16(draw.standard_normal((k, n)))
                name = f"matmul_{architecture}_{warps}_{'t' if a_columns else 'n'}{'t' if b_columns else 'n'}"
                lie_a = np.ascontiguousarray(a.T) if a_columns else a
                lie_b = np.ascontiguousarray(b.T) if b_columns else b
                # Sums of 192 products of magnitude 1 in f32, in any order: far below 1e-3.
                write(folder, name, matmul, architecture, warps,
                      [("a", lie_a, "bf16"), ("b", lie_b, "bf16"), ("c", None, "fp32")], {"K": k},
                      {"M": m, "N": n, "STEP": step, "A_COLUMNS": a_columns, "B_COLUMNS": b_columns}, 1,
                      f32(a).astype(np.float64) @ f32(b).astype(np.float64), 1e-3)
        s, d, rows = 256, 64, 64 if warps == 4 else 128
        q, k, v = (bf16(draw.standard_normal((s, d))) for _ in range(3))
        scores = f32(q).astype(np.float64) @ f32(k).astype(np.float64).T * 0.125
        scores[np.triu_indices(s, 1)] = -np.inf
        e = np.exp(scores - scores.max(1, keepdims=True))
        # Weights are rounded to bf16: 2^-9 of values of magnitude up to 4.
        write(folder, f"attend_{architecture}_{warps}", attend, architecture, warps,
              [("q", q, "bf16"), ("k", k, "bf16"), ("v", v, "bf16"), ("o", None, "fp32")], {"S": s},
              {"ROWS": rows, "D": d}, s // rows, e / e.sum(1, keepdims=True) @ f32(v), 2e-2)
        x = draw.standard_normal((8, 1000)).astype(np.float32)
        e = np.exp(x.astype(np.float64))
        write(folder, f"softmax_{architecture}_{warps}", softmax, architecture, warps,
              [("x", x, "fp32"), ("y", None, "fp32")], {"N": 1000}, {"BLOCK": 1024}, 8,
              e / e.sum(1, keepdims=True), 1e-6)


main()
