// linear and its two gradients: matrix products, with scale, bias and acc in the same pass.
#include "backend/gpu/kernels.h"
#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {
namespace {

class LinearKernel final : public Kernel {
 public:
  // `bias` and `acc`: which inputs they are, -1 for none.
  LinearKernel(std::unique_ptr<MatrixProduct> product, int bias, int acc)
      : product_(std::move(product)), bias_(bias), acc_(acc) {}
  Status Run(const KernelArgs& args) override {
    return product_ == nullptr ? OkStatus()
                               : product_->Run({.a = args.inputs[0],
                                                .b = args.inputs[1],
                                                .acc = acc_ < 0 ? nullptr : args.inputs[acc_],
                                                .bias = bias_ < 0 ? nullptr : args.inputs[bias_],
                                                .out = args.outputs[0]});
  }

 private:
  const std::unique_ptr<MatrixProduct> product_;  // nullptr: the output has no element
  const int bias_, acc_;
};

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
  std::unique_ptr<MatrixProduct> product;
  if (shape.m > 0 && shape.n > 0) {
    TEMPER_ASSIGN_OR_RETURN(product, context.products->Make(shape));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<LinearKernel>(std::move(product), bias ? 2 : -1, acc ? 2 + bias : -1));
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
