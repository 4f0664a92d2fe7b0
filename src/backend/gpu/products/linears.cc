// linears and its two gradients, one product at a time. Each product of d_x is added to the sum of those before it.
#include <array>
#include <vector>

#include "backend/gpu/kernels.h"

namespace temper::gpu {
namespace {

// A kernel of `linear` or of its gradients on some of the operands.
struct Part {
  std::unique_ptr<Kernel> kernel;
  std::vector<int> inputs;  // -1: output 0
  int output = 0;
};

class LinearsKernel final : public Kernel {
 public:
  explicit LinearsKernel(std::vector<Part> parts) : parts_(std::move(parts)) {}
  Status Run(const KernelArgs& args) override {
    for (const Part& part : parts_) {
      std::array<std::byte*, 3> in{};
      for (size_t i = 0; i < part.inputs.size(); ++i) {
        in[i] = part.inputs[i] < 0 ? args.outputs[0] : args.inputs[part.inputs[i]];
      }
      TEMPER_RETURN_IF_ERROR(
          part.kernel->Run({.inputs = in.data(), .outputs = args.outputs + part.output, .workspace = args.workspace}));
    }
    return OkStatus();
  }

 private:
  const std::vector<Part> parts_;
};

using Maker = Result<std::unique_ptr<Kernel>> (*)(const KernelSpec& spec, const Context& context);

// operands_of(i): the inputs of product i, of which the third is added to it.
template <class OperandsOf>
Result<std::unique_ptr<Kernel>> MakeParts(const KernelSpec& spec, const Context& context, Op op, Maker make,
                                          const OperandsOf& operands_of) {
  std::vector<Part> parts;
  const int n = 2 + spec.attributes.Flag("third");
  for (int i = 0; i < n; ++i) {
    Part part{.inputs = operands_of(i, n), .output = op == Op::kLinearDx ? 0 : i};
    KernelSpec one{.op = op,
                   .outputs = {spec.outputs[static_cast<size_t>(part.output)]},
                   .attributes = {{"acc", int64_t{part.inputs.size() == 3}}},
                   .threads = spec.threads,
                   .workspace = spec.workspace};
    for (const int in : part.inputs) {
      one.inputs.push_back(in < 0 ? spec.outputs[0] : spec.inputs[static_cast<size_t>(in)]);
    }
    TEMPER_ASSIGN_OR_RETURN(part.kernel, make(one, context));
    parts.push_back(std::move(part));
  }
  return std::unique_ptr<Kernel>(std::make_unique<LinearsKernel>(std::move(parts)));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLinears(const KernelSpec& spec, const Context& context) {
  return MakeParts(spec, context, Op::kLinear, MakeLinear, [](int i, int) { return std::vector<int>{0, 1 + i}; });
}
Result<std::unique_ptr<Kernel>> MakeLinearsDx(const KernelSpec& spec, const Context& context) {
  const bool acc = spec.attributes.Flag("acc");
  return MakeParts(spec, context, Op::kLinearDx, MakeLinearDx, [acc](int i, int n) {
    std::vector<int> operands = {i, n + i};
    if (i > 0) operands.push_back(-1);
    if (i == 0 && acc) operands.push_back(2 * n);
    return operands;
  });
}
Result<std::unique_ptr<Kernel>> MakeLinearsDw(const KernelSpec& spec, const Context& context) {
  const bool acc = spec.attributes.Flag("acc");
  return MakeParts(spec, context, Op::kLinearDw, MakeLinearDw, [acc](int i, int n) {
    std::vector<int> operands = {i, n};
    if (acc) operands.push_back(n + 1 + i);
    return operands;
  });
}

}  // namespace temper::gpu
