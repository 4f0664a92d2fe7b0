// sum_squares, sum_scalars and clip. Floor of sum_squares: bytes of the gradient; the others are a launch.
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

constexpr int64_t kBlockElements = 4096;  // of a partial sum: the workspace rule of graph/ops/optimizer.cc

// In double: squares of f32 are exact there, and 4096 of them overflow nothing.
template <class T>
__global__ void PartialSquares(const T* g, int64_t n, double* partial) {
  TEMPER_SHARED(double, scratch, kMostWarps);
  const int64_t begin = int64_t{blockIdx.x} * kBlockElements;
  const int64_t end = begin + kBlockElements < n ? begin + kBlockElements : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kBlockThreads) {
    const double x = Get(g + i);
    sum += x * x;
  }
  sum = ReduceBlock<Sum, double>(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void TotalSquares(const double* partial, int64_t n, double* total) {
  TEMPER_SHARED(double, scratch, kMostWarps);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kBlockThreads) sum += partial[i];
  sum = ReduceBlock<Sum, double>(sum, scratch);
  if (threadIdx.x == 0) *total = sum;
}

// A launch takes 4 KiB of parameters at most.
constexpr int kSumsPerLaunch = 256;
struct Sums {
  const double* x[kSumsPerLaunch];
};

// One thread adds up: the order of the sum is the graph's.
__device__ double AddedUp(const Sums& sums, int count, double total) {
  for (int i = 0; i < count; ++i) total += *sums.x[i];
  return total;
}

// Adds up `count` sums behind what earlier launches left in *total.
__global__ void AddSums(Sums sums, int count, bool first, double* total) {
  *total = AddedUp(sums, count, first ? 0 : *total);
}

// The same in the bytes of out_2; the last launch makes factor and norm of them (backend/cpu/reference/clip.cc has the
// formula).
__global__ void ClipSums(Sums sums, int count, bool first, bool last, const double* scalars, double max_norm,
                         float* out_2) {
  const double total = AddedUp(sums, count, first ? 0 : *reinterpret_cast<const double*>(out_2));
  if (!last) {
    *reinterpret_cast<double*>(out_2) = total;
    return;
  }
  const double tokens = scalars[kScalarTokenCount], norm = sqrt(total) / tokens;
  double coefficient = 1;
  if (max_norm > 0 && max_norm / (norm + 1e-6) < 1) coefficient = max_norm / (norm + 1e-6);
  out_2[0] = static_cast<float>(coefficient / tokens);
  out_2[1] = static_cast<float>(norm);
}

// Calls launch(sums, count, first, last) until the first n inputs have been added up: once where there are none.
template <class Launch>
Status ForSums(const KernelArgs& args, int n, const Launch& launch) {
  int begin = 0;
  do {
    const int count = n - begin < kSumsPerLaunch ? n - begin : kSumsPerLaunch;
    Sums sums = {};
    for (int i = 0; i < count; ++i) sums.x[i] = In<double>(args, begin + i);
    TEMPER_RETURN_IF_ERROR(launch(sums, count, begin == 0, begin + count == n));
    begin += count;
  } while (begin < n);
  return OkStatus();
}

}  // namespace

std::unique_ptr<Kernel> MakeSumSquares(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t n = spec.inputs[0].shape.elements(), blocks = (n + kBlockElements - 1) / kBlockElements;
    TEMPER_CHECK(spec.workspace.v >= blocks * 8) << spec.workspace.v;
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      double* const partial = reinterpret_cast<double*>(args.workspace);
      if (blocks > 0) {
        TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((PartialSquares<T>), static_cast<unsigned>(blocks),
                                             unsigned{kBlockThreads}, stream, In<T>(args, 0), n, partial));
      }
      return TEMPER_LAUNCH(TotalSquares, 1u, unsigned{kBlockThreads}, stream, partial, blocks, Out<double>(args, 0));
    });
  });
}

std::unique_ptr<Kernel> MakeSumScalars(const KernelSpec& spec, const Context& context) {
  const int n = static_cast<int>(spec.inputs.size());
  return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
    return ForSums(args, n, [&](const Sums& sums, int count, bool first, bool) {
      return TEMPER_LAUNCH(AddSums, 1u, 1u, stream, sums, count, first, Out<double>(args, 0));
    });
  });
}

std::unique_ptr<Kernel> MakeClip(const KernelSpec& spec, const Context& context) {
  const int n = static_cast<int>(spec.inputs.size()) - 1;
  const double max_norm = spec.attributes.DoubleOr("max_norm", 0);
  return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
    return ForSums(args, n, [&](const Sums& sums, int count, bool first, bool last) {
      return TEMPER_LAUNCH(ClipSums, 1u, 1u, stream, sums, count, first, last, In<double>(args, n), max_norm,
                           Out<float>(args, 0));
    });
  });
}

}  // namespace temper::gpu
