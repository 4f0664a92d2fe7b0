// Which products linears and its gradients ask the library for. Their numbers: tests/conformance/linears_test.cc.
#include <gtest/gtest.h>

#ifdef TEMPER_GPU_EMULATED
#include <string>
#include <vector>

#include "backend/gpu/emulator/host_products.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/products/matrix_product.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::gpu::linears_test {
namespace {

class NotedProducts final : public MatrixProducts {
 public:
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) override {
    names.push_back(NameOf(shape));
    return HostProducts().Make(shape);
  }
  std::vector<std::string> names;
};

std::vector<std::string> ProductsOf(Op op, const Types& inputs, const Attributes& attributes) {
  const simt::Machine machine;
  NotedProducts products;
  KernelSpec spec{.op = op, .inputs = inputs, .attributes = attributes};
  spec.outputs = *InferTypes(op, inputs, attributes);
  spec.workspace = RuleOf(op).workspace(inputs, spec.outputs, attributes, 1);
  const Context context = {.stream = &machine, .copies = nullptr, .faults = nullptr, .products = &products};
  const auto kernel = MakeGpuKernel(spec, context);
  EXPECT_TRUE(kernel.ok()) << kernel.status().message();
  return products.names;
}

// So algorithms are timed, kept and named by the shape of all weights together.
TEST(GpuLinears, AreOneProductOfAllWeightsForwardAndBackward) {
  const auto matrix = [](DType dtype, int64_t rows, int64_t columns) { return TensorType{dtype, {rows, columns}}; };
  const DType bf16 = DType::kBF16;
  const TensorType x = matrix(bf16, 96, 64), of_8 = matrix(bf16, 96, 8), of_16 = matrix(bf16, 96, 16);
  const TensorType w_8 = matrix(bf16, 8, 64), w_16 = matrix(bf16, 16, 64);
  const TensorType sum_8 = matrix(DType::kF32, 8, 64), sum_16 = matrix(DType::kF32, 16, 64);
  const Attributes three = {{"third", int64_t{1}}}, added = {{"acc", int64_t{1}}, {"third", int64_t{1}}};
  const Attributes two = {{"third", int64_t{0}}}, begun = {{"acc", int64_t{0}}, {"third", int64_t{0}}};
  using Names = std::vector<std::string>;
  EXPECT_EQ(ProductsOf(Op::kLinears, {x, w_8, w_16, w_8}, three),
            Names{"[96, 64] x [32, 64] of bf16 into bf16, a by rows, b by rows"});
  EXPECT_EQ(ProductsOf(Op::kLinears, {x, w_8, w_8}, two),
            Names{"[96, 64] x [16, 64] of bf16 into bf16, a by rows, b by rows"});
  EXPECT_EQ(ProductsOf(Op::kLinearsDx, {of_8, of_16, of_8, w_8, w_16, w_8, x}, added),
            Names{"[96, 32] x [64, 32] of bf16 into bf16, a by rows, b by columns, acc"});
  EXPECT_EQ(ProductsOf(Op::kLinearsDx, {of_8, of_8, w_8, w_8}, begun),
            Names{"[96, 16] x [64, 16] of bf16 into bf16, a by rows, b by columns"});
  // What is added to joins the sums where these go to their places.
  EXPECT_EQ(ProductsOf(Op::kLinearsDw, {of_8, of_16, of_8, x, sum_8, sum_16, sum_8}, added),
            Names{"[32, 96] x [64, 96] of bf16 into f32, a by columns, b by columns"});
  EXPECT_EQ(ProductsOf(Op::kLinearsDw, {of_8, of_8, x}, begun),
            Names{"[16, 96] x [64, 96] of bf16 into f32, a by columns, b by columns"});
}

}  // namespace
}  // namespace temper::gpu::linears_test
#endif
