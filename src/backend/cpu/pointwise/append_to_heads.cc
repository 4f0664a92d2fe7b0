// append_to_heads and its backward: threads share the tokens; a token's sum over heads stays in registers, in f32.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeAppendToHeads(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1]})) return nullptr;
  const int64_t rows = spec.inputs[0].shape[0], H = spec.attributes.Int("heads");
  const int64_t size = SizeOf(spec.inputs[0].dtype.compute());
  const int64_t own = spec.inputs[0].shape[1] / H * size, tail = spec.inputs[1].shape[1] * size;
  return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
    ParallelBlocks(threads, rows, kRowsPerRange, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * H; i < end * H; ++i) {
        std::byte* const y = args.outputs[0] + i * (own + tail);
        std::memcpy(y, args.inputs[0] + i * own, static_cast<size_t>(own));
        std::memcpy(y + own, args.inputs[1] + i / H * tail, static_cast<size_t>(tail));
      }
    });
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeAppendToHeadsBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[0].shape[0], H = spec.attributes.Int("heads"), R = spec.attributes.Int("tail");
    const int64_t N = spec.outputs[0].shape[1] / H;
    return MakeKernel([=, sum_rows = VectorsFor<T>(isa).sum_rows, round = VectorsFor<T>(isa).from_f32,
                       threads = spec.threads](const KernelArgs& args) {
      const T* const d_y = In<T>(args, 0);
      T *const d_x = Out<T>(args, 0), *const d_tail = Out<T>(args, 1);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const T* const heads = d_y + t * H * (N + R);
          for (int64_t h = 0; h < H; ++h) {
            std::memcpy(d_x + (t * H + h) * N, heads + h * (N + R), static_cast<size_t>(N) * sizeof(T));
          }
          for (int64_t r = 0; r < R; r += kSumRowsColumns) {
            const int64_t columns = std::min(kSumRowsColumns, R - r);
            float sum[kSumRowsColumns];
            sum_rows(heads + N + r, H, N + R, columns, nullptr, sum);
            round(sum, d_tail + t * R + r, columns);
          }
        }
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
