#include "model/norm.h"

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
  TEMPER_CHECK(!grouped) << module << ": no layer norm of groups";
  const bool shifted = spec.kind == kLayer || spec.kind == kLayerPlusOne;
  const ValueId b = shifted ? f.NormShift(module + ".bias", width) : f.Constant(0, {width});
  if (spec.kind != kLayerPlusOne) return f.LayerNorm(x, w, b, spec.eps, name);
  return f.Add(Op::kLayerNorm, {x, w, b}, {{"eps", spec.eps}, {"plus_one", int64_t{1}}}, name)[0];
}

}  // namespace temper
