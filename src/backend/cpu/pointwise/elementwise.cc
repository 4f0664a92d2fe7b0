// add, scale, scale_by, cast, slice_rows and slice_columns.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/products/gemm.h"
#include "backend/cpu/products/pack.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

template <class From, class To>
std::unique_ptr<Kernel> MakeConvert(void (*convert)(const From*, To*, int64_t), int threads, int64_t n) {
  return MakeKernel([=](const KernelArgs& args) {
    const From* const x = In<From>(args, 0);
    To* const y = Out<To>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { convert(x + begin, y + begin, end - begin); });
    return OkStatus();
  });
}

template <class T>
using AddFn = void (*)(const T* a, const T* b, T* y, int64_t n);

template <class T>
std::unique_ptr<Kernel> MakeSum(AddFn<T> add, int threads, int64_t n) {
  return MakeKernel([=](const KernelArgs& args) {
    const T *const a = In<T>(args, 0), *const b = In<T>(args, 1);
    T* const y = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { add(a + begin, b + begin, y + begin, end - begin); });
    return OkStatus();
  });
}

// y_TD = a_TD + b_D.
template <class T>
std::unique_ptr<Kernel> MakeRowSum(AddFn<T> add, int threads, int64_t rows, int64_t D) {
  const int64_t at_once = std::max<int64_t>(1, kElementsPerRange / std::max<int64_t>(1, D));
  return MakeKernel([=](const KernelArgs& args) {
    const T *const a = In<T>(args, 0), *const b = In<T>(args, 1);
    T* const y = Out<T>(args, 0);
    ParallelBlocks(threads, rows, at_once, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) add(a + t * D, b, y + t * D, D);
    });
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeCopy(int threads, int64_t bytes, int64_t from) {
  return MakeKernel([=](const KernelArgs& args) {
    const std::byte* const x = args.inputs[0] + from;
    std::byte* const y = args.outputs[0];
    if (x == y) return OkStatus();
    ParallelBlocks(threads, bytes, 4 * kElementsPerRange,
                   [=](int64_t begin, int64_t end) { std::memcpy(y + begin, x + begin, end - begin); });
    return OkStatus();
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeAdd(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    const auto add = VectorsFor<T>(isa).add;
    return spec.inputs[1].shape == spec.inputs[0].shape
               ? MakeSum<T>(add, spec.threads, spec.outputs[0].shape.elements())
               : MakeRowSum<T>(add, spec.threads, spec.outputs[0].shape.rows(), spec.outputs[0].shape.columns());
  });
}

std::unique_ptr<Kernel> MakeScale(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t n = spec.inputs[0].shape.elements();
    const auto factor = static_cast<float>(spec.attributes.Double("factor"));
    return MakeKernel([=, threads = spec.threads, scale = VectorsFor<T>(isa).scale](const KernelArgs& args) {
      const T* const x = In<T>(args, 0);
      T* const y = Out<T>(args, 0);
      ParallelBlocks(threads, n, kElementsPerRange,
                     [=](int64_t begin, int64_t end) { scale(x + begin, factor, y + begin, end - begin); });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeScaleBy(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]}) || spec.inputs[1].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t n = spec.inputs[0].shape.elements();
    return MakeKernel([=, threads = spec.threads, scale = VectorsFor<T>(isa).scale](const KernelArgs& args) {
      const T* const x = In<T>(args, 0);
      const float factor = *In<float>(args, 1);
      T* const y = Out<T>(args, 0);
      ParallelBlocks(threads, n, kElementsPerRange,
                     [=](int64_t begin, int64_t end) { scale(x + begin, factor, y + begin, end - begin); });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeCast(const KernelSpec& spec, Isa isa) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  const int64_t n = spec.outputs[0].shape.elements();
  if (spec.outputs[0].packed()) {
    const TileKernels& tiles = TilesOf(DType::kBF16, isa);
    return tiles.pair_panels ? MakePackOf(spec, tiles) : nullptr;
  }
  if (from == to) return MakeCopy(spec.threads, spec.outputs[0].bytes().v, 0);
  if (from == DType::kF32 && to == DType::kBF16) return MakeConvert(VectorsFor<bf16>(isa).from_f32, spec.threads, n);
  if (from == DType::kBF16 && to == DType::kF32) return MakeConvert(VectorsFor<bf16>(isa).to_f32, spec.threads, n);
  return nullptr;
}

std::unique_ptr<Kernel> MakeSliceRows(const KernelSpec& spec, Isa) {
  const int64_t row_bytes = spec.inputs[0].shape.columns() * SizeOf(spec.inputs[0].dtype);
  return MakeCopy(spec.threads, spec.outputs[0].bytes().v, spec.attributes.Int("begin") * row_bytes);
}

std::unique_ptr<Kernel> MakeSliceColumns(const KernelSpec& spec, Isa) {
  const int64_t element = SizeOf(spec.inputs[0].dtype), rows = spec.outputs[0].shape.rows();
  const int64_t from_row = spec.inputs[0].shape.columns() * element, to_row = spec.outputs[0].shape.columns() * element;
  const int64_t from = spec.attributes.Int("begin") * element;
  const int64_t at_once = std::max<int64_t>(1, 4 * kElementsPerRange / std::max<int64_t>(1, to_row));
  return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
    const std::byte* const x = args.inputs[0] + from;
    std::byte* const y = args.outputs[0];
    ParallelBlocks(threads, rows, at_once, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) std::memcpy(y + t * to_row, x + t * from_row, static_cast<size_t>(to_row));
    });
    return OkStatus();
  });
}

// Where the sum lies on what it is added to, the other columns are not touched.
std::unique_ptr<Kernel> MakeSliceColumnsBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.outputs[0].shape.rows(), D = spec.outputs[0].shape.columns();
    const int64_t C = spec.inputs[0].shape.columns(), first = spec.attributes.Int("begin");
    const bool acc = spec.attributes.Flag("acc");
    const int64_t at_once = std::max<int64_t>(1, kElementsPerRange / std::max<int64_t>(1, acc ? C : D));
    return MakeKernel([=, threads = spec.threads, add = VectorsFor<T>(isa).add](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const before = acc ? In<T>(args, 1) : nullptr;
      T* const d_x = Out<T>(args, 0);
      ParallelBlocks(threads, rows, at_once, [=](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          T* const to = d_x + t * D;
          if (!acc) {
            std::fill(to, to + first, T());
            std::memcpy(to + first, d_y + t * C, static_cast<size_t>(C) * sizeof(T));
            std::fill(to + first + C, to + D, T());
            continue;
          }
          const T* const from = before + t * D;
          if (from != to) std::memcpy(to, from, static_cast<size_t>(D) * sizeof(T));
          add(from + first, d_y + t * C, to + first, C);
        }
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
