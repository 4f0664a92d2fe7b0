// rope_table and rope.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"
#include "graph/ops/rope_table.h"

namespace temper {

// Angles reach 1e5 radians and more, where f32 would lose them: double, and libm's sine. Once per micro-batch, for all
// layers: about 20 ns per element of a thread's time.
std::unique_ptr<Kernel> MakeRopeTable(const KernelSpec& spec, Isa) {
  if (spec.inputs[0].dtype != DType::kI32 || spec.outputs[0].dtype != DType::kF32) return nullptr;
  const int threads = spec.threads;
  const int64_t T = spec.inputs[0].shape.elements();
  return MakeKernel([=, frequencies = RopeFrequencies(spec.attributes),
                     shape = RopeTableShape(spec.attributes)](const KernelArgs& args) {
    const int32_t* const position = In<int32_t>(args, 0);
    const int32_t* const length = frequencies.by_document ? In<int32_t>(args, 1) : nullptr;
    float* const table = Out<float>(args, 0);
    ParallelBlocks(threads, T, kRowsPerRange, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const double scale = shape.ScaleAt(position[t]);
        const RopeFrequencies::OfDocument inv_freq = frequencies.Of(length == nullptr ? 0 : length[t]);
        float* const row = table + 2 * shape.half * t;
        for (int64_t e = 0; e < shape.half; ++e) {
          const double angle = static_cast<double>(position[t] + shape.shift) * inv_freq[e];
          row[shape.CosineAt(e)] = static_cast<float>(scale * std::cos(angle));
          row[shape.SineAt(e)] = static_cast<float>(scale * std::sin(angle));
        }
      }
    });
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeRope(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.outputs[0]}) || spec.inputs[1].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t rows = spec.inputs[0].shape.rows(), columns = spec.inputs[0].shape.columns();
    const int64_t E = spec.attributes.Int("head_dim"), R = spec.inputs[1].shape.columns();
    const RotaryHeads of = {columns / E, E, spec.attributes.IntOr("first", 0), R};
    const float sign = spec.attributes.Flag("inverse") ? -1.0f : 1.0f;
    const auto rope =
        spec.attributes.Flag("interleaved") ? VectorsFor<T>(isa).rope_interleaved : VectorsFor<T>(isa).rope;
    return MakeKernel([=](const KernelArgs& args) {
      const T* const x = In<T>(args, 0);
      const float* const table = In<float>(args, 1);
      T* const y = Out<T>(args, 0);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        rope(x + begin * columns, table + begin * R, sign, end - begin, of, y + begin * columns);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
