#!/usr/bin/env python3
"""Prints how Triton lays out tiles of 64 x 128 bf16 for Hopper's matrix units, and their descriptors: the test of
src/backend/gpu/units/warpgroup_unit.h has them as goldens. Needs triton (3.9 made them), no GPU: compiles a loop of attention for
sm_90 and evaluates the integer instructions of its PTX.
  python3 tests/conformance/wgmma_layout.py
"""
import os
import re

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ROWS, COLUMNS = 64, 128


@triton.jit
def attend(q, k, v, o, S, R: tl.constexpr, C: tl.constexpr):
    rows, columns = tl.arange(0, R), tl.arange(0, C)
    at = rows[:, None] * C + columns[None, :]
    q_tile = tl.load(q + at)
    out = tl.zeros((R, C), tl.float32)
    for s in range(0, S, R):
        scores = tl.dot(q_tile, tl.trans(tl.load(k + s * C + at)))
        out = tl.dot(scores.to(tl.bfloat16), tl.load(v + s * C + at), out)
    tl.store(o + at, out)


def compile_to_ptx():
    source = ASTSource(fn=attend,
                       signature={"q": "*bf16", "k": "*bf16", "v": "*bf16", "o": "*fp32", "S": "i32",
                                  "R": "constexpr", "C": "constexpr"},
                       constexprs={(5,): ROWS, (6,): COLUMNS},
                       attrs={(i,): [["tt.divisibility", 16]] for i in range(4)})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]


OPERATIONS = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "add": lambda a, b: a + b,
    "shl": lambda a, b: a << b, "mul.wide": lambda a, b: a * b, "mov": lambda a: a, "cvt": lambda a: a,
    "ld.param": lambda a: 0, "bfe": lambda a, at, n: a >> at & (1 << n) - 1,
}


def evaluate(ptx, thread):
    """Evaluates the text line by line without branches; only integer operations change registers. Pointers, shared
    memory and loop-carried values begin at 0. Yields (line, the thread's registers)."""
    registers = {"%tid.x": thread}
    for line in ptx.splitlines():
        line = line.strip()
        yield line, registers
        match = re.match(r"([a-z.]+?)((?:\.[a-z]*\d+)+)\s+(%\w+), (.*);", line)
        if not match or match[1].rstrip(".") not in OPERATIONS:
            continue
        operands = [int(x) if re.fullmatch(r"-?\d+", x) else registers.get(x, 0) for x in match[4].split(", ")]
        bits = 64 if match[3].startswith("%rd") else 32
        registers[match[3]] = OPERATIONS[match[1].rstrip(".")](*operands) % (1 << bits)


def main():
    ptx = compile_to_ptx()
    print("bytes from a tile's beginning where 8 elements from element 8 i on lie, i = 0 ...:")
    offsets = {}
    for thread in range(128):
        copies = [(r, match) for line, r in ((l, dict(r)) for l, r in evaluate(ptx, thread) if "cp.async.cg" in l)
                  if (match := re.search(r"\[ (%r\d+) \+ 0 \], \[ (%rd\d+)", line))]
        for registers, match in copies[:8]:  # of the first tile of keys
            offsets[registers[match[2]] // 16] = registers[match[1]]
    assert sorted(offsets) == list(range(ROWS * COLUMNS // 8)), sorted(offsets)
    print(", ".join(str(offsets[i]) for i in range(128)))
    assert all(offsets[i] == offsets[i - 128] + 1024 for i in range(128, len(offsets))), "each eight rows alike"

    described = [[], []]  # operands by rows, by columns
    for line, registers in evaluate(ptx, 0):
        match = re.match(r"wgmma\.mma_async.*\}, (?:\{.*\}, )?(?:%rd\d+, )?(%rd\d+), \S+, 1, 1(?:, 0)?, ([01]);", line)
        if match:
            described[int(match[2])].append(registers[match[1]])
    for name, descriptors in zip(("rows", "columns"), described):
        first = descriptors[0]
        begin = [(d & 0x3FFF) - (first & 0x3FFF) << 4 for d in descriptors]
        rest = {d >> 16 for d in descriptors}
        print(f"right operands by {name}: begin at bytes {begin}, else {', '.join(f'{r << 16:#018x}' for r in rest)}")


if __name__ == "__main__":
    main()
