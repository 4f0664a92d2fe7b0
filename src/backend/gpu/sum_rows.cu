// sum_rows, and the second half of the norms' d_w. Floor: bytes of x.
#include "backend/gpu/column_sums.h"
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

constexpr int kColumns = 32;                      // of a block: 128 bytes of f32, one memory transaction
constexpr int kLanes = kBlockThreads / kColumns;  // threads that share a column's rows
constexpr int kRun = 32;                          // rows whose sum is made before it is added to the others'

// y[c] = acc[c] + sum over rows of x[t, c]. A thread adds every kLanes-th row, in runs of kRun so that roundoff grows
// with kRun + rows / (kLanes kRun) instead of rows / kLanes.
template <class T>
__global__ void ColumnSums(const T* x, int64_t rows, int64_t columns, const float* acc, float* y) {
  TEMPER_SHARED(float, sums, kBlockThreads);
  const int column = static_cast<int>(threadIdx.x) % kColumns, lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t c = int64_t{blockIdx.x} * kColumns + column;
  float total = 0;
  if (c < columns) {
    for (int64_t t = lane; t < rows;) {
      float run = 0;
      for (int k = 0; k < kRun && t < rows; ++k, t += kLanes) run += Get(x + t * columns + c);
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
  return TEMPER_LAUNCH((ColumnSums<T>), static_cast<unsigned>((D + kColumns - 1) / kColumns), unsigned{kBlockThreads},
                       stream, x_TD, rows, D, acc_D, y_D);
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
