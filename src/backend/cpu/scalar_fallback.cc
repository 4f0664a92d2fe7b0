#include "backend/cpu/scalar_fallback.h"

#include <fmt/core.h>

#include "backend/cpu/attention/attention_units.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper {
namespace {

bool HasVectorKernel(const KernelSpec& spec, Isa isa) {
  if (isa == Isa::kScalar) return false;
  // With a shared vocabulary it needs an exchange, which exists only between ranks.
  if (IsLoss(spec.op)) return AllFast({spec.inputs[0]});
  return MakeFastKernel(spec, isa) != nullptr;
}

}  // namespace

std::optional<std::string> WhyScalar(const KernelSpec& spec, Isa isa) {
  if (HasVectorKernel(spec, isa)) return std::nullopt;
  if (isa == Isa::kScalar) return "no vector instructions are used (AVX2 is the least)";
  if (spec.attributes.Has("heads")) {
    const bool backward = spec.op == Op::kAttentionBackward || spec.op == Op::kAttentionStepBackward;
    const int64_t head_dim = spec.inputs[backward ? 1 : 0].shape[1] / spec.attributes.Int("heads");
    if (head_dim % 16 != 0) return fmt::format("head_dim {} is not a multiple of 16", head_dim);
    if (head_dim > kMaxHeadDim) return fmt::format("head_dim {} is above {}", head_dim, kMaxHeadDim);
  }
  std::string types;
  for (const TensorType& t : spec.inputs) types += fmt::format("{}{}", types.empty() ? "" : ", ", ToString(t.dtype));
  return fmt::format("there is no vector kernel for {}", types);
}

}  // namespace temper
