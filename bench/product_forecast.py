"""NVIDIA's model of its own GEMM kernels, applied to the products of a LoRA step: an independent forecast, for
shapes that no GPU is at hand for. Needs no GPU: pip install nvidia-matmul-heuristics (asked with 0.1.0.27).

    python bench/product_forecast.py [H200_SXM]

Llama-3.1-8B, r 16, all linear layers, 16,384 tokens. The model knows nothing of clocks that fall under load (a product
of random numbers reaches 790 TFLOP/s on an H200, not its 930), nor that a product may add to what is there: for those
that do, the bytes read are added at 3 TB/s.
"""
import sys

from nvMatmulHeuristics import (NvMatmulHeuristicsFlags, NvMatmulHeuristicsInterfaceEx, NvMatmulHeuristicsMatmulLayout,
                                NvMatmulHeuristicsNvidiaGpu, NvMatmulHeuristicsTarget)

T, R, V, LAYERS, PEAK_BYTES = 16384, 16, 128256, 32, 4.3e12
LINEARS = {"q": (4096, 4096), "k": (4096, 1024), "v": (4096, 1024), "o": (4096, 4096),
           "gate": (4096, 14336), "up": (4096, 14336), "down": (14336, 4096)}  # inputs, outputs

gpu = NvMatmulHeuristicsNvidiaGpu[sys.argv[1] if len(sys.argv) > 1 else "H200_SXM"]
model = NvMatmulHeuristicsInterfaceEx(backend=NvMatmulHeuristicsTarget.CUTLASS3, gpu=gpu,
                                      flags=NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING)


def seconds(m, n, k):
    problem = model.makeNvMatmulHeuristicsProblem(m, n, k, NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR)
    return min(kernel["runtime"] for kernel in model.get(problem, 8, precision="TST"))  # bf16, sums in f32


def adding(m, n, k):
    return seconds(m, n, k) + 2 * m * n / 3e12


thin = {"x A": 0.0, "+ h B": 0.0, "d_y B": 0.0, "+ d_h A": 0.0, "d_A": 0.0, "d_B": 0.0}
base = moved = 0.0
for inputs, outputs in LINEARS.values():
    thin["x A"] += seconds(T, R, inputs)
    thin["+ h B"] += adding(T, outputs, R)
    thin["d_y B"] += seconds(T, R, outputs)
    thin["+ d_h A"] += adding(T, inputs, R)
    thin["d_A"] += seconds(R, inputs, T)
    thin["d_B"] += seconds(outputs, R, T)
    base += seconds(T, outputs, inputs) + seconds(T, inputs, outputs)
    moved += 2 * T * 4 * (inputs + outputs)  # long operands of bf16, twice where they are added to
print(f"{gpu.name}: weights' products, forward and d_x, {base * LAYERS * 1e3:.0f} ms")
print(f"thin products {sum(thin.values()) * LAYERS * 1e3:.0f} ms, their bytes at {PEAK_BYTES / 1e12} TB/s "
      f"{moved * LAYERS / PEAK_BYTES * 1e3:.0f} ms: "
      + ", ".join(f"{name} {s * LAYERS * 1e3:.1f}" for name, s in thin.items()))
for rows in (512, 1024, 2048):
    print(f"d_x of the loss, {rows} rows at a time: {seconds(rows, 4096, V) * T / rows * 1e3:.1f} ms")
