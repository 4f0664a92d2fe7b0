#include "backend/gpu/gpu_kernels.h"

#include "graph/op_table.h"

namespace temper::gpu {

#define TEMPER_GPU_KERNEL(op) std::unique_ptr<Kernel> Make##op(const KernelSpec& spec, const Context& context);
#define TEMPER_GPU_PRODUCT(op) Result<std::unique_ptr<Kernel>> Make##op(const KernelSpec& spec, const Context& context);
#include "backend/gpu/kernel_list.inc"

namespace {

using Maker = Result<std::unique_ptr<Kernel>> (*)(const KernelSpec&, const Context&);

template <std::unique_ptr<Kernel> (*make)(const KernelSpec&, const Context&)>
Result<std::unique_ptr<Kernel>> OrRefused(const KernelSpec& spec, const Context& context) {
  std::unique_ptr<Kernel> kernel = make(spec, context);
  if (kernel != nullptr) return Result<std::unique_ptr<Kernel>>(std::move(kernel));
  std::string text = "the GPU backend has no " + std::string(ToString(spec.op)) + " of";
  for (const TensorType& t : spec.inputs) text += " " + t.ToString();
  return Unsupported(text + " " + spec.attributes.ToString());
}

constexpr OpTable<Maker> kMakers = {
#define TEMPER_GPU_KERNEL(op) {Op::k##op, OrRefused<Make##op>},
#define TEMPER_GPU_PRODUCT(op) {Op::k##op, Make##op},
#include "backend/gpu/kernel_list.inc"
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuKernel(const KernelSpec& spec, const Context& context) {
  const Maker make = kMakers[spec.op];
  if (make == nullptr) return Unsupported("the GPU backend has no kernel for " + std::string(ToString(spec.op)));
  return make(spec, context);
}

}  // namespace temper::gpu
