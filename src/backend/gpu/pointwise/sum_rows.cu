// sum_rows, and the second half of the norms' d_w. Floor: bytes of x.
#include "backend/gpu/launch.h"
#include "backend/gpu/pointwise/column_sums.h"

namespace temper::gpu {
namespace {

constexpr int kColumns = 32;  // of a block: 128 bytes of f32, one memory transaction; few, so that blocks are many
constexpr int kLanes = 32;    // threads that share a column's rows
constexpr int kRun = 32;      // rows whose sum is made before it is added to the others'
// Rows that a thread reads at once. A GPU's memory is kept busy by some 20 KiB under way per multiprocessor (H200: 4.3
// TB/s for 600 ns by 132 of them); a block has 16 KiB of bf16, and there may be only one.
constexpr int kBatch = 8;

// y[c] = acc[c] + sum over rows of x[t, c]. A thread adds every kLanes-th row, in runs of kRun so that roundoff grows
// with kRun + rows / (kLanes kRun) instead of rows / kLanes.
template <class T>
__global__ void __launch_bounds__(kColumns* kLanes)
    ColumnSums(const T* x, int64_t rows, int64_t columns, const float* acc, float* y) {
  TEMPER_SHARED(float, sums, kColumns* kLanes);
  const int column = static_cast<int>(threadIdx.x) % kColumns, lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t c = int64_t{blockIdx.x} * kColumns + column;
  float total = 0;
  if (c < columns) {
    for (int64_t t = lane; t < rows;) {
      float run = 0;
      for (int done = 0; done < kRun && t < rows; done += kBatch, t += kBatch * kLanes) {
        float batch[kBatch];
        for (int k = 0; k < kBatch; ++k) batch[k] = t + k * kLanes < rows ? Get(x + (t + k * kLanes) * columns + c) : 0;
        for (int k = 0; k < kBatch; ++k) run += batch[k];
      }
      total += run;
    }
  }
  sums[threadIdx.x] = total;
  __syncthreads();
  if (lane > 0 || c >= columns) return;
  total = acc == nullptr ? 0 : acc[c];
  for (int l = 0; l < kLanes; ++l) total += sums[l * kColumns + column];
  y[c] = total;
}

}  // namespace

template <class T>
Status SumColumns(const T* x_TD, int64_t rows, int64_t D, const float* acc_D, float* y_D, gpuStream_t stream) {
  if (D == 0) return OkStatus();
  return TEMPER_LAUNCH((ColumnSums<T>), static_cast<unsigned>((D + kColumns - 1) / kColumns),
                       unsigned{kColumns * kLanes}, stream, x_TD, rows, D, acc_D, y_D);
}
template Status SumColumns(const float*, int64_t, int64_t, const float*, float*, gpuStream_t);
template Status SumColumns(const bf16*, int64_t, int64_t, const float*, float*, gpuStream_t);

std::unique_ptr<Kernel> MakeSumRows(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[0].shape.rows(), D = spec.inputs[0].shape.columns();
    const bool acc = spec.attributes.Flag("acc");
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      return SumColumns<T>(In<T>(args, 0), rows, D, acc ? In<float>(args, 1) : nullptr, Out<float>(args, 0), stream);
    });
  });
}

}  // namespace temper::gpu
