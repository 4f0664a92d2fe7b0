// linear and its two gradients: matrix products, with scale, bias and acc in the same pass. A quantised weight becomes
// bf16 in scratch first, whole, so that the product is that of a base in bf16, to the bit.
#include <optional>

#include "backend/gpu/kernels.h"
#include "backend/gpu/products/dequantise.h"
#include "backend/gpu/products/matrix_product.h"
#include "tensor/format_rule.h"

namespace temper::gpu {
namespace {

class LinearKernel final : public Kernel {
 public:
  // `quantised`: the type of input 1 if it is quantised: it is written to scratch as bf16 first. `bias` and `acc`:
  // which inputs they are, -1 for none.
  LinearKernel(std::unique_ptr<MatrixProduct> product, std::optional<TensorType> quantised, int bias, int acc,
               gpuStream_t stream)
      : product_(std::move(product)), quantised_(std::move(quantised)), bias_(bias), acc_(acc), stream_(stream) {}
  Status Run(const KernelArgs& args) override {
    if (product_ == nullptr) return OkStatus();
    const std::byte* b = args.inputs[1];
    if (quantised_) {
      TEMPER_RETURN_IF_ERROR(Dequantise(*quantised_, b, args.workspace, stream_));
      b = args.workspace;
    }
    return product_->Run({.a = args.inputs[0],
                          .b = b,
                          .acc = acc_ < 0 ? nullptr : args.inputs[acc_],
                          .bias = bias_ < 0 ? nullptr : args.inputs[bias_],
                          .out = args.outputs[0]});
  }

 private:
  const std::unique_ptr<MatrixProduct> product_;  // nullptr: the output has no element
  const std::optional<TensorType> quantised_;
  const int bias_, acc_;
  const gpuStream_t stream_;
};

// Input 1, if it is quantised. Kernels that read packed weights are the CPU's.
Result<std::optional<TensorType>> QuantisedOf(const KernelSpec& spec) {
  const TensorType& w = spec.inputs[1];
  if (w.packed()) return Unsupported(std::string(ToString(spec.op)) + " of " + w.ToString() + " on GPUs");
  if (spec.attributes.Flag("pair2")) return Unsupported(std::string(ToString(spec.op)) + " of two pairs on GPUs");
  if (!w.dtype.quantised()) return std::optional<TensorType>();
  if (!RuleOf(w.dtype).on_gpus) {
    return Unsupported(
        std::string(RuleOf(w.dtype).title) +
        " is not read on GPUs: set device: cpu, or dequantise the model first (temper export --dtype bf16)");
  }
  if (!spec.attributes.Flag("dequantise")) {
    return Unsupported(std::string(ToString(spec.op)) + " of " + w.ToString() + " without scratch for its numbers");
  }
  const Bytes numbers = w.computed().bytes();
  TEMPER_CHECK(spec.workspace >= numbers) << spec.workspace.v << " of " << numbers.v;
  return std::optional(w);
}

Result<std::unique_ptr<Kernel>> MakeProduct(const KernelSpec& spec, const Context& context, int64_t k, bool a_by_rows,
                                            bool b_by_rows) {
  const bool bias = spec.attributes.Flag("bias"), acc = spec.attributes.Flag("acc");
  const ProductShape shape = {.m = spec.outputs[0].shape[0],
                              .n = spec.outputs[0].shape[1],
                              .k = k,
                              .dtype = spec.inputs[0].dtype,
                              .out_dtype = spec.outputs[0].dtype,
                              .a_k_contiguous = a_by_rows,
                              .b_k_contiguous = b_by_rows,
                              .acc = acc,
                              .bias = bias,
                              .scale = spec.attributes.DoubleOr("scale", 1.0)};
  TEMPER_ASSIGN_OR_RETURN(std::optional<TensorType> quantised, QuantisedOf(spec));
  std::unique_ptr<MatrixProduct> product;
  if (shape.m > 0 && shape.n > 0) {
    TEMPER_ASSIGN_OR_RETURN(product, context.products->Make(shape));
  }
  return std::unique_ptr<Kernel>(std::make_unique<LinearKernel>(std::move(product), std::move(quantised), bias ? 2 : -1,
                                                                acc ? 2 + bias : -1, context.stream));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLinear(const KernelSpec& spec, const Context& context) {
  return MakeProduct(spec, context, spec.inputs[0].shape[1], true, true);
}
Result<std::unique_ptr<Kernel>> MakeLinearDx(const KernelSpec& spec, const Context& context) {
  return MakeProduct(spec, context, spec.inputs[0].shape[1], true, false);
}
Result<std::unique_ptr<Kernel>> MakeLinearDw(const KernelSpec& spec, const Context& context) {
  return MakeProduct(spec, context, spec.inputs[0].shape[0], false, false);
}

}  // namespace temper::gpu
