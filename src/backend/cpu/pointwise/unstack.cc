// unstack and its backward. Threads share the rows of what is written; columns in turn are read with a stride, from
// lines that stay in L1 while all experts of a row are made.
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

// Elements [e, o, i] of a stack of `stack[0]` experts from `first` on, and (o*I + i)*all + first + e of the matrix that
// interleaves `all`: calls move(matrix, stack) with both places, by rows of the matrix.
template <class Move>
void ForInterleaved(int threads, const Shape& stack, int64_t all, int64_t first, const Move& move) {
  const int64_t E = stack[0], O = stack[1], I = stack[2];
  ParallelBlocks(threads, O, 8, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (int64_t e = 0; e < E; ++e) {
        for (int64_t i = 0; i < I; ++i) move((o * I + i) * all + first + e, (e * O + o) * I + i);
      }
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeUnstack(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    return MakeKernel([stack = spec.outputs[0].shape, interleaved = spec.attributes.Flag("interleaved"),
                       all = spec.attributes.Int("matrices"), first = spec.attributes.IntOr("begin", 0),
                       threads = spec.threads](const KernelArgs& args) {
      const T* const w = In<T>(args, 0);
      T* const out = Out<T>(args, 0);
      if (interleaved) {
        ForInterleaved(threads, stack, all, first, [=](int64_t from, int64_t to) { out[to] = w[from]; });
        return OkStatus();
      }
      ParallelBlocks(threads, stack.elements(), kElementsPerRange, [=](int64_t begin, int64_t end) {
        std::memcpy(out + begin, w + first * stack[1] * stack[2] + begin, static_cast<size_t>(end - begin) * sizeof(T));
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeUnstackBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return MakeKernel([stack = spec.inputs[0].shape, interleaved = spec.attributes.Flag("interleaved"),
                     all = spec.attributes.IntOr("whole", spec.inputs[0].shape[0]),
                     first = spec.attributes.IntOr("begin", 0), acc = spec.attributes.Flag("acc"),
                     add = VectorsFor<float>(isa).add, threads = spec.threads](const KernelArgs& args) {
    const float *const d = In<float>(args, 0), *const before = acc ? In<float>(args, 1) : nullptr;
    float* const out = Out<float>(args, 0);
    if (all != stack[0] && !(acc && before == out)) {  // of other ranks' experts: what there was, or zeros
      const int64_t elements = all * stack[1] * stack[2];
      ParallelBlocks(threads, elements, kElementsPerRange, [=](int64_t begin, int64_t end) {
        const auto bytes = static_cast<size_t>(end - begin) * sizeof(float);
        if (acc) {
          std::memcpy(out + begin, before + begin, bytes);
        } else {
          std::memset(out + begin, 0, bytes);
        }
      });
    }
    if (interleaved) {
      ForInterleaved(threads, stack, all, first,
                     [=](int64_t to, int64_t from) { out[to] = acc ? before[to] + d[from] : d[from]; });
      return OkStatus();
    }
    const int64_t own = first * stack[1] * stack[2];  // where this rank's begin
    ParallelBlocks(threads, stack.elements(), kElementsPerRange, [=](int64_t begin, int64_t end) {
      if (acc) return add(before + own + begin, d + begin, out + own + begin, end - begin);
      std::memcpy(out + own + begin, d + begin, static_cast<size_t>(end - begin) * sizeof(float));
    });
    return OkStatus();
  });
}

}  // namespace temper
