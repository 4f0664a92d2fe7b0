// embedding: a gather of rows; quantised rows become numbers. Its backward: a scatter with sums, each element of the
// table by one thread, in the order of the tokens, so the result does not depend on the number of threads.
#include <cstring>

#include "backend/cpu/formats/format_readers.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/embedding_rows.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/products/gemm.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

// Threads share a table row's sum by columns; 64 of them are four cache lines of f32.
constexpr int64_t kColumnsPerThread = 64;

}  // namespace

std::unique_ptr<Kernel> MakeEmbedding(const KernelSpec& spec, Isa isa) {
  const ElementFormat format = spec.inputs[0].dtype;
  if (format.compute() != spec.outputs[0].dtype || spec.inputs[1].dtype != DType::kI32) return nullptr;
  const FormatReaders* const readers = format.quantised() ? TilesOf(format.compute(), isa).readers : nullptr;
  const int threads = spec.threads;
  const int64_t T = spec.inputs[1].shape.elements(), D = spec.inputs[0].shape.columns();
  const int64_t kept_bytes = format.RowBytes(D), row_bytes = D * SizeOf(format.compute());
  const EmbeddingRows rows(spec.attributes, spec.inputs[0].shape[0]);
  return MakeKernel([=](const KernelArgs& args) -> Status {
    const int32_t* const index = In<int32_t>(args, 1);
    TEMPER_RETURN_IF_ERROR(rows.Check(index, T));
    ParallelBlocks(threads, T, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        std::byte* const to = args.outputs[0] + t * row_bytes;
        const int64_t row = rows.Find(index[t]);
        const std::byte* const from = args.inputs[0] + row * kept_bytes;
        if (row < 0) {
          std::memset(to, 0, row_bytes);
        } else if (readers == nullptr) {
          std::memcpy(to, from, row_bytes);
        } else {
          ReadNumbers(*readers, format, from, D, 0, D, reinterpret_cast<uint16_t*>(to));
        }
      }
    });
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeEmbeddingBackward(const KernelSpec& spec, Isa isa) {
  const bool acc = spec.attributes.Flag("acc");
  if (!AllFast({spec.inputs[0]}) || spec.inputs[1].dtype != DType::kI32 || spec.outputs[0].dtype != DType::kF32) {
    return nullptr;
  }
  return DispatchFloat(spec.inputs[0].dtype, [&]<class Element>() {
    const int threads = spec.threads;
    const int64_t V = spec.outputs[0].shape[0], D = spec.outputs[0].shape[1], T = spec.inputs[1].shape.elements();
    const EmbeddingRows rows(spec.attributes, V);
    const auto accumulate = VectorsFor<Element>(isa).accumulate;
    return MakeKernel([=](const KernelArgs& args) -> Status {
      const Element* const d_x = In<Element>(args, 0);
      const int32_t* const index = In<int32_t>(args, 1);
      float* const d_table = Out<float>(args, 0);
      TEMPER_RETURN_IF_ERROR(rows.Check(index, T));
      const float* const sums = acc ? In<float>(args, 2) : nullptr;
      if (sums != d_table) {
        ParallelBlocks(threads, V * D, 4 * kElementsPerRange, [=](int64_t begin, int64_t end) {
          if (sums == nullptr) {
            std::memset(d_table + begin, 0, (end - begin) * sizeof(float));
          } else {
            std::memcpy(d_table + begin, sums + begin, (end - begin) * sizeof(float));
          }
        });
      }
      ParallelBlocks(threads, D, kColumnsPerThread, [=](int64_t begin, int64_t end) {
        for (int64_t t = 0; t < T; ++t) {
          const int64_t row = rows.Find(index[t]);
          if (row >= 0) accumulate(d_x + t * D + begin, d_table + row * D + begin, end - begin);
        }
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
