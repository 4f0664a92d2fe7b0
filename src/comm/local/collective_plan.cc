#include "comm/local/collective_plan.h"

#include <fmt/core.h>

#include "base/philox.h"
#include "graph/rule.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

constexpr int64_t kCacheLine = 64;

size_t NumTensors(const KernelSpec& spec) {
  return spec.outputs.size();
}
bool IsCut(Op op) {
  return op == TrafficOp::kAllGather || op == TrafficOp::kReduceScatter;
}
// The type of the whole of tensor t, which is what one side of the node has.
const TensorType& WholeOf(const KernelSpec& spec, size_t t) {
  return spec.op == TrafficOp::kAllGather ? spec.outputs[t] : spec.inputs[t];
}
const TensorType& PartTypeOf(const KernelSpec& spec, size_t t) {
  return spec.op == TrafficOp::kAllGather ? spec.inputs[t] : spec.outputs[t];
}

}  // namespace

std::string DescribeCollective(const KernelSpec& spec) {
  std::string text = fmt::format("{} over {}", ToString(spec.op), spec.attributes.String("axes"));
  if (IsCut(spec.op)) text += fmt::format(" of dim {}", spec.attributes.Int("dim"));
  if (spec.op == TrafficOp::kReduceScatter && spec.attributes.Flag("acc")) text += " with acc";
  if (spec.attributes.Flag("background")) text += " in the background";
  if (spec.attributes.Flag("soon")) text += ", needed soon,";
  for (size_t t = 0; t < NumTensors(spec); ++t) text += " " + WholeOf(spec, t).ToString();
  return text;
}

std::vector<int64_t> OwnPartSizes(const KernelSpec& spec) {
  std::vector<int64_t> sizes(NumTensors(spec), 0);
  if (!IsCut(spec.op)) return sizes;
  const int dim = static_cast<int>(spec.attributes.Int("dim"));
  for (size_t t = 0; t < sizes.size(); ++t) sizes[t] = PartTypeOf(spec, t).shape[dim];
  return sizes;
}

Result<CollectivePlan> PlanCollective(const KernelSpec& spec, int members, std::span<const int64_t> sizes) {
  const size_t tensors = NumTensors(spec);
  TEMPER_CHECK(sizes.size() == tensors * static_cast<size_t>(members)) << sizes.size() << " sizes";
  CollectivePlan plan{.op = spec.op,
                      .acc = spec.op == TrafficOp::kReduceScatter && spec.attributes.Flag("acc"),
                      .threads = spec.threads,
                      .fingerprint = HashName(DescribeCollective(spec)),
                      .sent = RuleOf(spec.op).cost(spec.inputs, spec.outputs, spec.attributes).sent};
  for (size_t t = 0; t < tensors; ++t) {
    const TensorType& whole = WholeOf(spec, t);
    CollectiveTensor tensor{.dtype = whole.dtype.compute(), .opaque = whole.dtype.quantised()};
    if (IsCut(spec.op)) {
      const int dim = static_cast<int>(spec.attributes.Int("dim"));
      for (int d = 0; d < whole.shape.rank(); ++d) {
        if (d < dim) tensor.outer *= whole.shape[d];
        if (d > dim) tensor.inner *= whole.shape[d];
      }
      if (tensor.opaque) {  // whole rows, of matrices or of stacks of them: dim 0
        tensor.inner = whole.shape.rank() > 2 ? whole.shape[1] : 1;
        tensor.inner *= whole.dtype.RowBytes(whole.shape.columns());
      }
      tensor.whole = whole.shape[dim];
      int64_t begin = 0;
      for (int m = 0; m < members; ++m) {
        const int64_t count = sizes[static_cast<size_t>(m) * tensors + t];
        tensor.parts.push_back({begin, count});
        begin += count;
      }
      if (begin != tensor.whole) {
        return InvalidArgument(fmt::format("{}: the parts of tensor {} on the {} ranks of the group add up to {} of {}",
                                           DescribeCollective(spec), t, members, begin, tensor.whole));
      }
    } else {
      // Cut where cache lines begin, so that no two ranks write the same one.
      tensor.whole = whole.shape.elements();
      const int64_t per_line = kCacheLine / SizeOf(whole.dtype);
      const int64_t lines = (tensor.whole + per_line - 1) / per_line;
      for (int m = 0; m < members; ++m) {
        const Part part = PartOf(lines, members, m);
        const int64_t begin = std::min(part.begin * per_line, tensor.whole);
        tensor.parts.push_back({begin, std::min((part.begin + part.count) * per_line, tensor.whole) - begin});
      }
    }
    plan.bytes += tensor.bytes();
    plan.tensors.push_back(std::move(tensor));
  }
  const bool awaited = !spec.attributes.Flag("background") || spec.attributes.Flag("soon");
  plan.forgets = !awaited && plan.bytes >= kForgetFrom;
  return plan;
}

}  // namespace temper
