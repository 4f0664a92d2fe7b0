#!/usr/bin/env python3
"""Writes which lane holds which element of the matrix units' operands and sums, according to Triton's compiler, for
src/backend/gpu/units/warp_matrix_test.cc. Needs triton >= 3.5, but no GPU. Usage: matrix_layouts.py

A line per operand: a lane's elements are numbered, and the bits of that number and of the lane's add up (row, column)."""
from triton._C.libtriton import amd, gluon_ir, ir, nvidia
from triton.experimental.gluon.language import DotOperandLayout, NVMMADistributedLayout
from triton.experimental.gluon.language.amd import AMDMFMALayout

context = ir.context()
ir.load_dialects(context)
amd.load_dialects(context)
nvidia.load_dialects(context)
builder = gluon_ir.GluonOpBuilder(context)


def show(name, sums, k_width, m, n, k):
    for operand, layout, shape in (("a", DotOperandLayout(0, sums, k_width), [m, k]),
                                   ("b", DotOperandLayout(1, sums, k_width), [k, n]), ("c", sums, [m, n])):
        linear = builder.to_linear_layout(layout._to_ir(builder), shape)
        print(name, operand, "element bits", linear.reg_bases, "lane bits", linear.lane_bases)


show("mma.m16n8k16", NVMMADistributedLayout([2, 0], [1, 1], [16, 8]), 2, 16, 8, 16)
for version, gpu in ((2, "gfx90a"), (3, "gfx942")):
    show(f"mfma_f32_32x32x8 {gpu}", AMDMFMALayout(version, [32, 32, 8], False, [1, 1]), 4, 32, 32, 8)
