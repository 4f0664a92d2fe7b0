// ssd and its backward: threads share the packed rows and blocks of heads. A document's state runs through its chunks
// one after another.
#include "graph/ops/ssd.h"
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/recurrence/ssd_rows.h"
#include "base/team.h"

namespace temper {
namespace {

template <class T>
const SsdKernelsOf<T>& SsdKernelsFor(Isa isa) {
  const SsdKernels& kernels = isa >= Isa::kAvx512 ? kSsdAvx512 : kSsdAvx2;
  if constexpr (std::is_same_v<T, float>) {
    return kernels.f32;
  } else {
    return kernels.bf16_;
  }
}

// Calls run(row, block) for each row and block of a group's heads. Operands from `first` on are x, b, c, g, dt, d,
// document_start. Scratch of threads begins at `scratch`.
template <class T, class Run>
void ForEachBlock(int threads, const SsdDims& dims, const SsdScratch& at, const KernelArgs& args, int first,
                  float* scratch, const Run& run) {
  const int64_t blocks = dims.blocks(), items = dims.tokens / dims.row * dims.groups * blocks;
  const auto of_thread = [&](TeamMember self) {
    SsdRow<T> row{.dims = dims,
                  .at = at,
                  .x = In<T>(args, first),
                  .b = In<T>(args, first + 1),
                  .c = In<T>(args, first + 2),
                  .d = In<T>(args, first + 5),
                  .g = In<float>(args, first + 3),
                  .dt = In<float>(args, first + 4),
                  .document_start = In<int32_t>(args, first + 6),
                  .begin = 0,
                  .end = 0,
                  .group = 0,
                  .first_head = 0,
                  .heads = 0,
                  .scratch = scratch + self.index * at.floats};
    for (int64_t i = items * self.index / self.size; i < items * (self.index + 1) / self.size; ++i) {
      const int64_t block = i % blocks;
      row.group = i / blocks % dims.groups;
      row.begin = i / blocks / dims.groups * dims.row;
      row.end = row.begin + dims.row;
      row.first_head = row.group * dims.group() + block * kSsdHeads;
      row.heads = std::min(kSsdHeads, dims.group() - block * kSsdHeads);
      run(row, block);
    }
  };
  RunTeam(static_cast<int>(dims.workers(threads)), of_thread);
}

}  // namespace

std::unique_ptr<Kernel> MakeSsd(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;  // the shape rule wants b, c and d like x
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const SsdDims dims = SsdDimsOf(spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.attributes);
    return MakeKernel([=, at = SsdScratchOf(dims, false), f = SsdKernelsFor<T>(isa).forward,
                       threads = spec.threads](const KernelArgs& args) {
      ForEachBlock<T>(threads, dims, at, args, 0, reinterpret_cast<float*>(args.workspace),
                      [&](const SsdRow<T>& row, int64_t) { f(row, Out<T>(args, 0)); });
      return OkStatus();
    });
  });
}

// Blocks' gradients of b and c come first in the workspace: all of b, then all of c.
std::unique_ptr<Kernel> MakeSsdBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const SsdDims dims = SsdDimsOf(spec.inputs[1], spec.inputs[2], spec.inputs[3], spec.attributes);
    return MakeKernel(
        [=, at = SsdScratchOf(dims, true), f = SsdKernelsFor<T>(isa), threads = spec.threads](const KernelArgs& args) {
          const int64_t of_block = dims.tokens * dims.groups * dims.state_dim, of_b = dims.blocks() * of_block;
          float *const d_b = reinterpret_cast<float*>(args.workspace), *const d_c = d_b + of_b;
          ForEachBlock<T>(threads, dims, at, args, 1, d_c + of_b, [&](const SsdRow<T>& row, int64_t block) {
            f.backward(row, {.d_y = In<T>(args, 0),
                             .d_x = Out<T>(args, 0),
                             .d_b = d_b + block * of_block,
                             .d_c = d_c + block * of_block,
                             .d_g = Out<float>(args, 3),
                             .d_dt = Out<float>(args, 4),
                             .d_d = Out<float>(args, 5)});
          });
          ParallelBlocks(threads, of_block, kElementsPerRange, [&](int64_t begin, int64_t end) {
            f.add(d_b, dims.blocks(), of_block, begin, end, Out<T>(args, 1));
            f.add(d_c, dims.blocks(), of_block, begin, end, Out<T>(args, 2));
          });
          return OkStatus();
        });
  });
}

std::unique_ptr<Kernel> MakeSsdCached(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const SsdDims dims = SsdDimsOf(spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.attributes);
    return MakeKernel([=, f = SsdKernelsFor<T>(isa).steps, of_states = spec.inputs[6].shape.elements(),
                       threads = spec.threads](const KernelArgs& args) {
      float* const states = Out<float>(args, 1);
      if (In<float>(args, 6) != states) std::copy_n(In<float>(args, 6), of_states, states);
      ParallelFor(threads, dims.heads, [&](int64_t head) {
        f({.dims = dims,
           .x = In<T>(args, 0),
           .b = In<T>(args, 1),
           .c = In<T>(args, 2),
           .d = In<T>(args, 5),
           .g = In<float>(args, 3),
           .dt = In<float>(args, 4),
           .slot = In<int32_t>(args, 7),
           .position = In<int32_t>(args, 8),
           .head = head,
           .states = states},
          Out<T>(args, 0));
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
