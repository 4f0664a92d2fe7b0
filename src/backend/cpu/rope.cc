// rope_table and rope.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/range_kernel.h"
#include "backend/cpu/row_blocks.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

// Angles reach 1e5 radians and more, where f32 would lose them: double, and libm's sine. Once per micro-batch, for all
// layers: about 20 ns per element of a thread's time.
std::unique_ptr<Kernel> MakeRopeTable(const KernelSpec& spec, Isa) {
  if (spec.inputs[0].dtype != DType::kI32 || spec.outputs[0].dtype != DType::kF32) return nullptr;
  const int threads = spec.threads;
  const int64_t T = spec.inputs[0].shape.elements();
  return MakeKernel([=, inv_freq = spec.attributes.Doubles("inv_freq")](const KernelArgs& args) {
    const int32_t* const position = In<int32_t>(args, 0);
    float* const table = Out<float>(args, 0);
    const int64_t half = static_cast<int64_t>(inv_freq.size());
    ParallelBlocks(threads, T, kRowsPerRange, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t e = 0; e < half; ++e) {
          const double angle = position[t] * inv_freq[e];
          table[2 * half * t + e] = static_cast<float>(std::cos(angle));
          table[2 * half * t + half + e] = static_cast<float>(std::sin(angle));
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
    const int64_t E = spec.attributes.Int("head_dim");
    const float sign = spec.attributes.Flag("inverse") ? -1.0f : 1.0f;
    const auto rope = VectorsFor<T>(isa).rope;
    return MakeKernel([=](const KernelArgs& args) {
      const T* const x = In<T>(args, 0);
      const float* const table = In<float>(args, 1);
      T* const y = Out<T>(args, 0);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        rope(x + begin * columns, table + begin * E, sign, end - begin, columns / E, E, y + begin * columns);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
