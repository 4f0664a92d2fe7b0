// linears and its two gradients, each as one product: x is read once, and d_x written once. Operands that lie apart are
// copied side by side before it, and results to their places after it. Floor of the copies: the bytes of the thin
// operands and of the weights, read and written once more. x is wider than the former and longer than the latter.
#include <algorithm>
#include <array>

#include "backend/gpu/launch.h"
#include "backend/gpu/products/matrix_product.h"
#include "graph/named_ops.h"
#include "graph/ops/linears_scratch.h"
#include "graph/rule.h"

namespace temper::gpu {
namespace {

constexpr int kMost = 3;  // weights of a node

// Up to three matrices of as many rows, and the matrix that they make side by side, in elements of T.
template <class T>
struct SideBySide {
  T* together;
  int64_t width;  // of `together`
  T* apart[kMost];
  int64_t columns[kMost];

  // Where element i of `together` lies apart. A division per call.
  __device__ T* Apart(int64_t i) const {
    const int64_t row = i / width;
    int64_t column = i - row * width;
    T* found = nullptr;
    TEMPER_UNROLL for (int p = 0; p < kMost; ++p) {
      if (column >= 0 && column < columns[p]) found = apart[p] + row * columns[p] + column;
      column -= columns[p];
    }
    return found;
  }
};

template <class T>
struct Join {
  SideBySide<T> of;
  template <int>
  __device__ void Run(int64_t i) const {
    of.together[i] = *of.Apart(i);
  }
};
template <class T>
struct Split {
  SideBySide<T> of;
  template <int>
  __device__ void Run(int64_t i) const {
    *of.Apart(i) = of.together[i];
  }
};

// A gradient is its part of the sums, or is added to: acc + that part. Either may lie in the other's place.
struct SplitSums {
  SideBySide<float> of;
  const float* acc[kMost];  // nullptr: none is added to
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float sum[kCount];
    Load(of.together + i, sum);
    int64_t at = i;
    TEMPER_UNROLL for (int p = 0; p < kMost; ++p) {
      if (at >= 0 && at < of.columns[p]) {
        if (acc[p] != nullptr) {
          float before[kCount];
          Load(acc[p] + at, before);
          for (int k = 0; k < kCount; ++k) sum[k] += before[k];
        }
        Store(of.apart[p] + at, sum);
      }
      at -= of.columns[p];
    }
  }
};

using Columns = std::array<int64_t, kMost>;  // of each matrix; 0 where there is none

template <class T>
SideBySide<T> SidesOf(std::byte* together, std::byte* const* apart, const Columns& columns) {
  SideBySide<T> of = {.together = reinterpret_cast<T*>(together)};
  for (int p = 0; p < kMost; ++p) {
    of.apart[p] = columns[p] == 0 ? nullptr : reinterpret_cast<T*>(apart[p]);
    of.columns[p] = columns[p];
    of.width += columns[p];
  }
  return of;
}

bool AreMultiples(const Columns& columns, int64_t of) {
  return std::all_of(columns.begin(), columns.end(), [of](int64_t c) { return c % of == 0; });
}

// Copies `rows` rows, 16 bytes at a time where each matrix's rows are so many.
template <template <class> class F>
Status CopySides(std::byte* together, std::byte* const* apart, int64_t rows, Columns columns, int64_t element_bytes,
                 gpuStream_t stream) {
  const auto copy = [&]<class T>() {
    for (int64_t& c : columns) c = c * element_bytes / static_cast<int64_t>(sizeof(T));
    const SideBySide<T> of = SidesOf<T>(together, apart, columns);
    return Map<1>(rows * of.width, F<T>{of}, stream);
  };
  return AreMultiples(columns, 16 / element_bytes) ? copy.template operator()<Pack<uint32_t, 4>>()
                                                   : copy.template operator()<uint16_t>();
}

class LinearsKernel final : public Kernel {
 public:
  LinearsKernel(const KernelSpec& spec, const ProductDims& dims, std::unique_ptr<MatrixProduct> product,
                gpuStream_t stream)
      : op_(spec.op),
        acc_(spec.attributes.Flag("acc")),
        n_(2 + spec.attributes.Flag("third")),
        T_(op_ == Op::kLinearsDw ? dims.inner : dims.rows),
        I_(op_ == Op::kLinears ? dims.inner : dims.columns),
        element_bytes_(SizeOf(spec.inputs[0].dtype)),
        layout_(T_, I_,
                op_ == Op::kLinears     ? dims.columns
                : op_ == Op::kLinearsDx ? dims.inner
                                        : dims.rows,
                spec.inputs[0].dtype.compute(), op_ == Op::kLinearsDw ? DType::kF32 : spec.inputs[0].dtype.compute(),
                {}),
        product_(std::move(product)),
        stream_(stream) {
    TEMPER_CHECK(layout_.bytes <= spec.workspace) << layout_.bytes.v << " of " << spec.workspace.v;
    for (int p = 0; p < n_; ++p) {
      const auto i = static_cast<size_t>(p);
      thin_columns_[i] = (op_ == Op::kLinears ? spec.outputs : spec.inputs)[i].shape[1];
      weight_elements_[i] = thin_columns_[i] * I_;
    }
  }

  Status Run(const KernelArgs& args) override {
    if (product_ == nullptr) return OkStatus();
    std::byte *const thin = args.workspace, *const weights = args.workspace + layout_.weights.v;
    if (op_ == Op::kLinears) {
      TEMPER_RETURN_IF_ERROR(JoinWeights(args.inputs + 1, weights));
      TEMPER_RETURN_IF_ERROR(Multiply(args.inputs[0], weights, thin));
      return CopySides<Split>(thin, args.outputs, T_, thin_columns_, element_bytes_, stream_);
    }
    TEMPER_RETURN_IF_ERROR(CopySides<Join>(thin, args.inputs, T_, thin_columns_, element_bytes_, stream_));
    if (op_ == Op::kLinearsDx) {
      TEMPER_RETURN_IF_ERROR(JoinWeights(args.inputs + n_, weights));
      return Multiply(thin, weights, args.outputs[0], acc_ ? args.inputs[2 * n_] : nullptr);
    }
    TEMPER_RETURN_IF_ERROR(Multiply(thin, args.inputs[n_], weights));
    return SplitGradients(args, weights);
  }

 private:
  Status Multiply(const std::byte* a, const std::byte* b, std::byte* out, const std::byte* acc = nullptr) {
    return product_->Run({.a = a, .b = b, .acc = acc, .bias = nullptr, .out = out});
  }
  // One below the other: side by side, of one row each.
  Status JoinWeights(std::byte* const* apart, std::byte* together) {
    return CopySides<Join>(together, apart, 1, weight_elements_, element_bytes_, stream_);
  }
  Status SplitGradients(const KernelArgs& args, std::byte* sums) {
    SplitSums split = {.of = SidesOf<float>(sums, args.outputs, weight_elements_), .acc = {}};
    for (int p = 0; p < n_ && acc_; ++p) split.acc[p] = In<const float>(args, n_ + 1 + p);
    return AreMultiples(weight_elements_, kPack<float>) ? Map<kPack<float>>(split.of.width, split, stream_)
                                                        : Map<1>(split.of.width, split, stream_);
  }

  const Op op_;
  const bool acc_;
  const int n_;  // weights
  const int64_t T_, I_;
  const int64_t element_bytes_;  // of all but gradients of weights
  const LinearsScratch layout_;
  const std::unique_ptr<MatrixProduct> product_;  // nullptr: the outputs have no element
  const gpuStream_t stream_;
  Columns thin_columns_ = {}, weight_elements_ = {};
};

Result<std::unique_ptr<Kernel>> MakeJoined(const KernelSpec& spec, const Context& context) {
  const DType dtype = spec.inputs[0].dtype.compute();
  const ProductDims d = RuleOf(spec.op).product(spec.inputs);
  std::unique_ptr<MatrixProduct> product;
  if (d.rows > 0 && d.columns > 0) {
    TEMPER_ASSIGN_OR_RETURN(product,
                            context.products->Make({.m = d.rows,
                                                    .n = d.columns,
                                                    .k = d.inner,
                                                    .dtype = dtype,
                                                    .out_dtype = spec.op == Op::kLinearsDw ? DType::kF32 : dtype,
                                                    .a_k_contiguous = spec.op != Op::kLinearsDw,
                                                    .b_k_contiguous = spec.op == Op::kLinears,
                                                    .acc = spec.op == Op::kLinearsDx && spec.attributes.Flag("acc")}));
  }
  return std::unique_ptr<Kernel>(std::make_unique<LinearsKernel>(spec, d, std::move(product), context.stream));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLinears(const KernelSpec& spec, const Context& context) {
  if (spec.attributes.Has("scale")) return Unsupported(std::string(ToString(spec.op)) + " with a scale on GPUs");
  return MakeJoined(spec, context);
}
Result<std::unique_ptr<Kernel>> MakeLinearsDx(const KernelSpec& spec, const Context& context) {
  return MakeJoined(spec, context);
}
Result<std::unique_ptr<Kernel>> MakeLinearsDw(const KernelSpec& spec, const Context& context) {
  return MakeJoined(spec, context);
}

}  // namespace temper::gpu
