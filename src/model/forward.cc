#include "model/forward.h"

#include <cmath>

namespace temper {

ForwardBuilder::ForwardBuilder(Graph* graph, const ForwardSpec& spec, Aliases aliases)
    : GraphBuilder(graph), spec_(spec), aliases_(std::move(aliases)) {
  token_ = TokenInput(kTokenInput, DType::kI32, spec.tokens);
  position_ = TokenInput(kPositionInput, DType::kI32, spec.tokens);
  if (spec.cache > 0) {
    length_ = Source(kLengthInput, {DType::kI32, {1}}, Role::kInput);
  } else {
    document_start_ = TokenInput(kDocumentStartInput, DType::kI32, spec.tokens);
  }
}

FileTensor ForwardBuilder::TensorOf(const std::string& name, Shape shape) const {
  return {name, aliases_ ? aliases_(name) : std::vector<std::string>(), shape};
}

ValueId ForwardBuilder::Weight(const std::string& name, std::initializer_list<Dim> dims, Init init) {
  Shape shape;
  for (const Dim& dim : dims) shape.Append(dim.size);
  return Weight(name, dims, WeightSource(TensorOf(name, shape)), init);
}

ValueId ForwardBuilder::Weight(const std::string& name, std::initializer_list<Dim> dims, WeightSource source,
                               Init init) {
  // Norm weights and biases do not decay.
  WeightDeclaration weight{.name = name, .init = init, .decays = init == Init::kNormal, .source = std::move(source)};
  for (const Dim& dim : dims) {
    weight.shape.Append(dim.size);
    weight.labels.Append(dim.label);
  }
  const auto [it, fresh] = weights_.try_emplace(name, kNoValue);
  if (fresh) {
    it->second = Source(name, {spec_.dtype, weight.shape}, Role::kWeight);
    Value& value = graph().value(it->second);
    value.labels = weight.labels;
    value.decays = weight.decays;
    declared_.push_back(std::move(weight));
  } else {
    TEMPER_CHECK(type(it->second).shape == weight.shape)
        << name << " used as " << weight.shape.ToString() << " and as " << type(it->second).ToString();
  }
  return it->second;
}

ValueId ForwardBuilder::Constant(int n, Shape shape) {
  const std::string name = "constant." + std::to_string(n) + "." + shape.ToString();
  const auto [it, fresh] = weights_.try_emplace(name, kNoValue);
  if (fresh) it->second = Source(name, {spec_.dtype, shape}, Role::kConstant);
  return it->second;
}

void ForwardBuilder::AddModule(const std::string& path, std::span<const ValueId> weights) {
  LinearModule module{.path = path, .in = type(weights.front()).shape[1]};
  for (const ValueId w : weights) {
    module.weights.push_back(graph().value(w).name);
    module.rows.push_back(type(w).shape[0]);
  }
  modules_.push_back(std::move(module));
}

ValueId ForwardBuilder::Linear(ValueId x_TI, const std::string& module, Dim out, Dim in, bool bias,
                               const std::string& name) {
  // Keep this order: the buffers of a Program follow it, and so do their addresses, which a resumed run compares.
  const ValueId b = bias ? Weight(module + ".bias", {out}, Init::kZero) : kNoValue;
  const ValueId w = Weight(module + ".weight", {out, in});
  AddModule(module, {&w, 1});
  return Linear(x_TI, w, b, name);
}

std::vector<ValueId> ForwardBuilder::FusedLinear(ValueId x_TI, const std::string& module,
                                                 std::initializer_list<Segment> segments, Dim in, bool bias) {
  int64_t rows = 0, first = 0;
  for (const Segment& s : segments) rows += s.out.size;
  const FileTensor whole = TensorOf(module + ".weight", {rows, in.size}), shift = TensorOf(module + ".bias", {rows});
  std::vector<ValueId> weights, outputs;
  for (const Segment& s : segments) {
    const std::string suffix = std::string("/") + s.name;
    weights.push_back(Weight(whole.name + suffix, {s.out, in}, WeightSource::Rows(whole, first, s.out.size)));
    const ValueId b =
        bias ? Weight(shift.name + suffix, {s.out}, WeightSource::Rows(shift, first, s.out.size), Init::kZero)
             : kNoValue;
    outputs.push_back(Linear(x_TI, weights.back(), b, s.name));
    first += s.out.size;
  }
  AddModule(module, weights);
  return outputs;
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

void ForwardBuilder::Head(ValueId x_TD, ValueId w_VD, const std::string& module) {
  AddModule(module, {&w_VD, 1});
  modules_.back().is_head = true;
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
