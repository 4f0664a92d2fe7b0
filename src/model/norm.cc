#include "model/norm.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "graph/named_ops.h"

namespace temper {

ValueId BuildNorm(ForwardBuilder& f, const NormSpec& spec, ValueId x, const std::string& module, Dim over,
                  const std::string& name, bool grouped) {
  using enum NormKind;
  const bool plus_one = spec.kind == kRmsPlusOne, plain = spec.kind == kRmsPlain || spec.kind == kLayerPlain;
  const int64_t width = over.size;
  const auto init = plus_one ? ForwardBuilder::Init::kZero : ForwardBuilder::Init::kOne;
  const ValueId w = plain ? f.Constant(1, {width}) : f.Weight(module + ".weight", {over}, init);
  if (plus_one || spec.kind == kRms || spec.kind == kRmsPlain) {
    return f.RmsNorm(x, w, spec.eps, name, {.grouped = grouped, .plus_one = plus_one});
  }
  const bool shifted = spec.kind == kLayer || spec.kind == kLayerPlusOne;
  const ValueId b = shifted ? f.NormShift(module + ".bias", width) : f.Constant(0, {width});
  Attributes attributes = {{"eps", spec.eps}};
  if (spec.kind == kLayerPlusOne) attributes.Set("plus_one", int64_t{1});
  if (grouped) attributes.Set("grouped", int64_t{1});
  return f.Add(Op::kLayerNorm, {x, w, b}, std::move(attributes), name)[0];
}

ValueId BuildNormOfEach(ForwardBuilder& f, double eps, ValueId x, const std::string& module, const std::string& norms,
                        Dim groups, Dim over, const std::string& name) {
  const auto init = ForwardBuilder::Init::kOne;
  ValueId w;
  if (norms.empty()) {
    w = f.Weight(module + ".weight", {groups, over}, init);
  } else {
    std::vector<std::string> tensors;
    for (int64_t i = 0; i < groups.size; ++i) tensors.push_back(fmt::format("{}.{}.{}.weight", module, norms, i));
    w = f.StackedVectors(module + "." + norms, tensors, groups, over, init);
  }
  return f.Add(Op::kLayerNorm, {x, w}, {{"eps", eps}, {"grouped", int64_t{1}}, {"unshifted", int64_t{1}}}, name)[0];
}

}  // namespace temper
