// gated_delta and its backward: threads share the packed rows and the key heads. A document's state runs through its
// chunks one after another.
#include "graph/ops/gated_delta.h"
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/recurrence/gated_delta_rows.h"
#include "base/team.h"

namespace temper {
namespace {

template <class T>
const DeltaKernelsOf<T>& KernelsFor(Isa isa) {
  const DeltaKernels& kernels = isa >= Isa::kAvx512 ? kDeltaAvx512 : kDeltaAvx2;
  if constexpr (std::is_same_v<T, float>) {
    return kernels.f32;
  } else {
    return kernels.bf16_;
  }
}

// Calls run(row) for each row and key head. Operands from `first` on are q, k, v, g, b, document_start.
template <class T, class Run>
void ForEachRow(int threads, const DeltaDims& dims, const DeltaScratch& scratch, const KernelArgs& args, int first,
                const Run& run) {
  const int64_t rows = dims.tokens / dims.row, items = rows * dims.key_heads;
  const auto of_thread = [&](TeamMember self) {
    DeltaRow<T> row{.dims = dims,
                    .at = scratch,
                    .group = dims.group(),
                    .q = In<T>(args, first),
                    .k = In<T>(args, first + 1),
                    .v = In<T>(args, first + 2),
                    .b = In<T>(args, first + 4),
                    .g = In<float>(args, first + 3),
                    .document_start = In<int32_t>(args, first + 5),
                    .begin = 0,
                    .end = 0,
                    .head = 0,
                    .scratch = reinterpret_cast<float*>(args.workspace) + self.index * scratch.floats};
    for (int64_t i = items * self.index / self.size; i < items * (self.index + 1) / self.size; ++i) {
      row.begin = i / dims.key_heads * dims.row;
      row.end = row.begin + dims.row;
      row.head = i % dims.key_heads;
      run(row);
    }
  };
  RunTeam(static_cast<int>(dims.workers(threads)), of_thread);
}

}  // namespace

std::unique_ptr<Kernel> MakeGatedDelta(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;  // the shape rule wants k, v and b like q
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const DeltaDims dims = DeltaDimsOf(spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.attributes);
    return MakeKernel([=, at = DeltaScratchOf(dims, false), f = KernelsFor<T>(isa).forward,
                       threads = spec.threads](const KernelArgs& args) {
      ForEachRow<T>(threads, dims, at, args, 0, [&](const DeltaRow<T>& row) { f(row, Out<T>(args, 0)); });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeGatedDeltaBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const DeltaDims dims = DeltaDimsOf(spec.inputs[1], spec.inputs[2], spec.inputs[3], spec.attributes);
    return MakeKernel([=, at = DeltaScratchOf(dims, true), f = KernelsFor<T>(isa).backward,
                       threads = spec.threads](const KernelArgs& args) {
      const DeltaGradients<T> gradients{.d_o = In<T>(args, 0),
                                        .d_q = Out<T>(args, 0),
                                        .d_k = Out<T>(args, 1),
                                        .d_v = Out<T>(args, 2),
                                        .d_b = Out<T>(args, 4),
                                        .d_g = Out<float>(args, 3)};
      ForEachRow<T>(threads, dims, at, args, 1, [&](const DeltaRow<T>& row) { f(row, gradients); });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeGatedDeltaCached(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const DeltaDims dims = DeltaDimsOf(spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.attributes);
    return MakeKernel([=, floats = DeltaStepFloats(dims), f = KernelsFor<T>(isa).steps,
                       of_states = spec.inputs[5].shape.elements(), threads = spec.threads](const KernelArgs& args) {
      float* const states = Out<float>(args, 1);
      if (In<float>(args, 5) != states) std::copy_n(In<float>(args, 5), of_states, states);
      RunTeam(threads, [&](TeamMember self) {
        DeltaSteps<T> steps{.dims = dims,
                            .q = In<T>(args, 0),
                            .k = In<T>(args, 1),
                            .v = In<T>(args, 2),
                            .b = In<T>(args, 4),
                            .g = In<float>(args, 3),
                            .slot = In<int32_t>(args, 6),
                            .position = In<int32_t>(args, 7),
                            .head = 0,
                            .states = states,
                            .scratch = reinterpret_cast<float*>(args.workspace) + self.index * floats};
        const int64_t V = dims.value_heads;
        for (steps.head = V * self.index / self.size; steps.head < V * (self.index + 1) / self.size; ++steps.head) {
          f(steps, Out<T>(args, 0));
        }
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
