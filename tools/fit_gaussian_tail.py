#!/usr/bin/env python3
"""Prints the polynomial of backend/cpu/vector/exp-inl.h: P with R(a) = exp(a^2/2) Phi(-a) = t P(t), t = 1/(1 + a/4), with the least relative error on [0, 15]. Lawson's iteratively reweighted least squares; needs numpy."""
import math
import numpy as np

DEGREE, SCALE, END = 9, 0.25, 15.0

k = np.arange(400)
t_end = 1 / (1 + SCALE * END)
t = (t_end + 1) / 2 + (1 - t_end) / 2 * np.cos((2 * k + 1) * np.pi / 800)
a = (1 / t - 1) / SCALE
r = np.array([0.5 * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2)) for x in a])
terms = np.vander(t, DEGREE + 1, increasing=True) * (t / r)[:, None]
weight = np.ones(len(t))
for _ in range(60):
    root = np.sqrt(weight)
    p, *_ = np.linalg.lstsq(terms * root[:, None], root, rcond=None)
    error = np.abs(terms @ p - 1)
    weight *= error + 1e-30
    weight /= weight.sum()
print("coefficients, highest power first:", ", ".join(f"{np.float32(c):.9g}f" for c in p[::-1]))
print("largest relative error / 2^-24:", np.abs(terms @ p.astype(np.float32).astype(float) - 1).max() * 2**24)
print("sum of magnitudes / value:", (np.abs(p) * t[:, None] ** np.arange(DEGREE + 1)).sum(1).__mul__(t / r).max())
