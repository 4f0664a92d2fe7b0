// class_report: one thread looks at the logits of tokens with labels, which are few.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"

namespace temper {

std::unique_ptr<Kernel> MakeClassReport(const KernelSpec& spec, Isa) {
  if (spec.inputs[0].dtype != DType::kF32) return nullptr;
  return MakeKernel([tokens = spec.inputs[0].shape[0], classes = spec.inputs[0].shape[1]](const KernelArgs& args) {
    const float* const logits = In<float>(args, 0);
    const int32_t* const label = In<int32_t>(args, 1);
    float *const prediction = Out<float>(args, 0), *const correct = Out<float>(args, 1);
    for (int64_t t = 0; t < tokens; ++t) {
      prediction[t] = -1;
      correct[t] = 0;
      if (label[t] < 0) continue;
      const float* const row = logits + t * classes;
      const auto best = std::max_element(row, row + classes) - row;
      prediction[t] = static_cast<float>(best);
      correct[t] = best == label[t] ? 1 : 0;
    }
    return OkStatus();
  });
}

}  // namespace temper
