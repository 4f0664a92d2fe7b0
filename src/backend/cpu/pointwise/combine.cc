// gather_rows, combine and its backward: threads share the tokens, so that no sum depends on their number.
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"
#include "base/team.h"
#include "graph/ops/routed_rows.h"

namespace temper {

std::unique_ptr<Kernel> MakeGatherRows(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  const int64_t T = spec.inputs[1].shape[0], A = spec.inputs[1].shape[1];
  const int64_t row_bytes = spec.inputs[0].shape[1] * SizeOf(spec.inputs[0].dtype.compute());
  return MakeKernel([=, threads = spec.threads](const KernelArgs& args) -> Status {
    const int32_t* const place_TA = In<int32_t>(args, 1);
    TEMPER_RETURN_IF_ERROR(CheckPlaces(place_TA, T * A, T * A));
    ParallelBlocks(threads, T, kRowsPerRange, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * A; i < end * A; ++i) {
        std::memcpy(args.outputs[0] + place_TA[i] * row_bytes, args.inputs[0] + i / A * row_bytes, row_bytes);
      }
    });
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeCombine(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[1].shape[0], A = spec.inputs[1].shape[1], D = spec.inputs[0].shape[1];
    const bool weighted = spec.attributes.Flag("weighted"), acc = spec.attributes.Flag("acc");
    return MakeKernel([=, f = VectorsFor<T>(isa).combine, threads = spec.threads](const KernelArgs& args) -> Status {
      const int32_t* const place_TA = In<int32_t>(args, 1);
      const float* const weight_TA = weighted ? In<float>(args, 2) : nullptr;
      const T* const acc_TD = acc ? In<T>(args, 2 + weighted) : nullptr;
      TEMPER_RETURN_IF_ERROR(CheckPlaces(place_TA, tokens * A, tokens * A));
      ParallelBlocks(threads, tokens, kRowsPerRange, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          f(In<T>(args, 0), place_TA + t * A, weighted ? weight_TA + t * A : nullptr, acc ? acc_TD + t * D : nullptr, A,
            D, Out<T>(args, 0) + t * D);
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeCombineBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[2].shape[0], A = spec.inputs[2].shape[1], D = spec.inputs[0].shape[1];
    return MakeKernel(
        [=, f = VectorsFor<T>(isa).combine_backward, threads = spec.threads](const KernelArgs& args) -> Status {
          const int32_t* const place_TA = In<int32_t>(args, 2);
          TEMPER_RETURN_IF_ERROR(CheckPlaces(place_TA, tokens * A, tokens * A));
          ParallelBlocks(threads, tokens, kRowsPerRange, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; ++t) {
              f(In<T>(args, 0) + t * D, In<T>(args, 1), place_TA + t * A, In<float>(args, 3) + t * A, A, D,
                Out<T>(args, 0), Out<float>(args, 1) + t * A);
            }
          });
          return OkStatus();
        });
  });
}

}  // namespace temper
