#include "model/forward.h"

#include <cmath>

namespace temper {

ForwardBuilder::ForwardBuilder(Graph* graph, const ForwardSpec& spec) : GraphBuilder(graph), spec_(spec) {
  token_ = TokenInput(kTokenInput, DType::kI32, spec.tokens);
  position_ = TokenInput(kPositionInput, DType::kI32, spec.tokens);
  if (spec.cache > 0) {
    length_ = Source(kLengthInput, {DType::kI32, {1}}, Role::kInput);
  } else {
    document_start_ = TokenInput(kDocumentStartInput, DType::kI32, spec.tokens);
  }
}

ValueId ForwardBuilder::Weight(const std::string& name, Shape shape) {
  const auto [it, fresh] = weights_.try_emplace(name, kNoValue);
  if (fresh) it->second = Source(name, {spec_.dtype, shape}, Role::kWeight);
  TEMPER_CHECK(type(it->second).shape == shape)
      << name << " used as " << shape.ToString() << " and as " << type(it->second).ToString();
  return it->second;
}

ValueId ForwardBuilder::Constant(int n, Shape shape) {
  const std::string name = "constant." + std::to_string(n) + "." + shape.ToString();
  const auto [it, fresh] = weights_.try_emplace(name, kNoValue);
  if (fresh) it->second = Source(name, {spec_.dtype, shape}, Role::kConstant);
  return it->second;
}

ValueId ForwardBuilder::LinearModule(ValueId x_TI, const std::string& module, int64_t out, bool bias,
                                     const std::string& name) {
  const int64_t in = type(x_TI).shape[1];
  return Linear(x_TI, Weight(module + ".weight", {out, in}), WeightIf(bias, module + ".bias", {out}), name);
}

ValueId ForwardBuilder::Attend(ValueId q, ValueId k, ValueId v, const Heads& heads, int block,
                               const std::string& name) {
  Attributes attributes = {{"heads", heads.heads},
                           {"kv_heads", heads.kv_heads},
                           {"scale", 1.0 / std::sqrt(static_cast<double>(heads.head_dim))},
                           {"window", heads.window}};
  if (spec_.cache == 0) {
    attributes.Set("row", spec_.row > 0 ? spec_.row : spec_.tokens);
    return Add(Op::kAttention, {q, k, v, document_start_}, attributes, name)[0];
  }
  const TensorType cache{spec_.dtype, {spec_.cache, heads.kv_heads * heads.head_dim}};
  const std::string suffix = "." + std::to_string(block);
  const ValueId k_cache = Source("cache.k" + suffix, cache, Role::kCache);
  const ValueId v_cache = Source("cache.v" + suffix, cache, Role::kCache);
  const auto outputs = Add(Op::kAttentionCached, {q, k, v, k_cache, v_cache, length_}, attributes, name);
  graph().value(outputs[1]).updates = k_cache;
  graph().value(outputs[2]).updates = v_cache;
  return outputs[0];
}

ValueId ForwardBuilder::Dropout(ValueId x, double p, const std::string& name) {
  if (!spec_.training || p == 0) return x;
  if (rng_ == kNoValue) rng_ = Source(kRngInput, {DType::kI64, {kNumRngWords}}, Role::kInput);
  return Add(Op::kDropout, {x, rng_}, {{"p", p}}, name)[0];
}

void ForwardBuilder::Head(ValueId x_TD, ValueId w_VD) {
  EnterBlock(kBlockAfter, "");
  if (spec_.cache == 0) {
    std::vector<ValueId> inputs = {x_TD, w_VD, TokenInput(kTargetInput, DType::kI32, spec_.tokens)};
    Attributes attributes;
    if (spec_.weighted) {
      inputs.push_back(TokenInput(kWeightInput, DType::kF32, spec_.tokens));
      attributes.Set("weighted", int64_t{1});
    }
    Add(Op::kLinearCrossEntropy, std::move(inputs), std::move(attributes), kLossOutput, Role::kOutput);
    return;
  }
  const ValueId last = SliceRows(x_TD, spec_.tokens - 1, 1, "last");
  Add(Op::kLinear, {last, w_VD}, {{"acc", int64_t{0}}, {"bias", int64_t{0}}, {"out", std::string("f32")}},
      kLogitsOutput, Role::kOutput);
}

}  // namespace temper
