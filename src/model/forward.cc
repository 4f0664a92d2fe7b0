#include "model/forward.h"

#include <fmt/core.h>

#include <cmath>

#include "graph/named_ops.h"
#include "graph/ops/attention_cache.h"

namespace temper {

ForwardBuilder::ForwardBuilder(Graph* graph, const ForwardSpec& spec, Naming naming)
    : GraphBuilder(graph), spec_(spec), naming_(std::move(naming)) {
  token_ = Column(kTokenColumn);
  position_ = Column(kPositionColumn);
  if (spec.cache > 0) {
    slot_ = TokenInput(kSlotInput, DType::kI32, spec.tokens);
    page_table_ = Source(kPageTableInput, {DType::kI32, {spec.sequences, CachePagesOf(spec.cache)}}, Role::kInput);
  } else {
    document_start_ = Column(kDocumentStartColumn);
  }
}

ValueId ForwardBuilder::document_length() {
  if (document_length_ == kNoValue) document_length_ = Column(kDocumentLengthColumn);
  return document_length_;
}

namespace {

void Append(const std::vector<std::string>& names, std::vector<std::string>* to) {
  to->insert(to->end(), names.begin(), names.end());
}

}  // namespace

FileTensor ForwardBuilder::TensorOf(const std::string& name, Shape shape) const {
  std::vector<std::string> names = InFiles(name);
  std::string written = std::move(names.front());
  names.erase(names.begin());
  return {std::move(written), std::move(names), shape};
}

ValueId ForwardBuilder::Weight(const std::string& name, std::initializer_list<Dim> dims, Init init) {
  Shape shape;
  for (const Dim& dim : dims) shape.Append(dim.size);
  return Weight(name, dims, WeightSource(TensorOf(name, shape)), init);
}

ValueId ForwardBuilder::Weight(const std::string& name, std::initializer_list<Dim> dims, WeightSource source,
                               Init init) {
  // Norms and biases do not decay.
  WeightDeclaration weight{.name = InGraph(name),
                           .init = init,
                           .decays = init != Init::kZero && init != Init::kOne,
                           .source = std::move(source)};
  for (const Dim& dim : dims) {
    weight.shape.Append(dim.size);
    weight.labels.Append(dim.label);
  }
  const auto [it, fresh] = weights_.try_emplace(name, kNoValue);
  if (fresh) {
    it->second = Source(weight.name, {spec_.dtype, weight.shape}, Role::kWeight);
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

ValueId ForwardBuilder::StackedVectors(const std::string& name, std::span<const std::string> tensors, Dim rows,
                                       Dim columns, Init init) {
  std::vector<FileTensor> in_files;
  for (const std::string& tensor : tensors) in_files.push_back(TensorOf(tensor, {columns.size}));
  return Weight(name, {rows, columns}, WeightSource::Stack(std::move(in_files)), init);
}

ValueId ForwardBuilder::LinearOf(ValueId x_TI, LinearParameter p, Dim out, Dim in, const std::string& name) {
  const std::string& tensor = p.in_files.empty() ? p.name : p.in_files;
  FileTensor stored = TensorOf(tensor, {out.size, in.size});
  if (!p.in_files.empty()) Append(InFiles(p.name), &stored.aliases);  // the name of transformers' parameter
  const ValueId w = Weight(p.name, {out, in}, WeightSource(std::move(stored)));
  const ValueId b = p.bias.empty() ? kNoValue : Weight(p.bias, {out}, Init::kZero);
  modules_.push_back({.path = InGraph(p.name),
                      .tensors = InFiles(tensor),
                      .weights = {graph().value(w).name},
                      .rows = {out.size},
                      .in = in.size,
                      .is_parameter = true,
                      .module_names = std::move(p.module_names)});
  return Linear(x_TI, w, b, name);
}

std::vector<ValueId> ForwardBuilder::Stacks(const StackedParameter& p, std::span<const StackSegment> segments) {
  LinearModule stack{.path = InGraph(p.module + "." + p.name),
                     .in = p.in.size,
                     .is_parameter = true,
                     .matrices = p.matrices.size,
                     .active = p.active};
  const std::string path = p.module + "." + p.name;
  const bool in_out = p.files == StackFiles::kInOut;
  TEMPER_CHECK(!in_out || segments.size() == 1) << path;
  int64_t out = 0, first = 0;
  for (const StackSegment& s : segments) out += s.out.size;
  FileTensor whole;
  if (p.files != StackFiles::kEach) {
    const int64_t rows = in_out ? p.in.size : out, columns = in_out ? out : p.in.size;
    whole = TensorOf(p.tensor.empty() ? path : p.tensor, {p.matrices.size, rows, columns});
    stack.tensors = {whole.name};
    stack.layout = {.transposed = in_out, .stacked = true};
    if (!p.tensor.empty()) Append(InFiles(path), &whole.aliases);  // the name of transformers' parameter
    if (p.tensor.empty() && !in_out) {
      for (const StackSegment& s : segments) {
        whole.matrices_as.push_back({std::string(s.in_files) + ".weight", s.out.size});
      }
    }
  }
  const auto source_of = [&](const StackSegment& s) {
    if (in_out) return WeightSource::Columns(whole, 0, p.matrices.size);
    if (p.files == StackFiles::kOutIn) return WeightSource::RowsOfEach(whole, first);
    std::vector<FileTensor> tensors;
    for (int64_t i = 0; i < p.matrices.size; ++i) {
      tensors.push_back(TensorOf(fmt::format("{}.{}.{}.weight", p.module, i, s.in_files), {s.out.size, p.in.size}));
      stack.tensors.push_back(tensors.back().name);
    }
    return WeightSource::Stack(std::move(tensors));
  };
  std::vector<ValueId> weights;
  for (const StackSegment& s : segments) {
    const std::string name = segments.size() > 1 ? path + "/" + s.name : path;
    weights.push_back(Weight(name, {p.matrices, s.out, p.in}, source_of(s), p.init));
    stack.weights.push_back(graph().value(weights.back()).name);
    stack.rows.push_back(s.out.size);
    if (p.were_modules) stack.module_names.push_back(s.in_files);
    first += s.out.size;
  }
  modules_.push_back(std::move(stack));
  return weights;
}

ValueId ForwardBuilder::Number(const std::string& name, double value) {
  const ValueId id = Weight(name, {{DimLabel::kNone, 1}}, Init::kValue);
  declared_.back().value = value;
  declared_.back().labels = graph().value(id).labels = {};  // every rank has it
  return id;
}

ValueId ForwardBuilder::AddFixed(WeightDeclaration weight) {
  weight.decays = false;
  weight.fixed = true;
  const ValueId id = Source(weight.name, {DType::kF32, weight.shape}, Role::kWeight);
  graph().value(id).labels = weight.labels;
  declared_.push_back(std::move(weight));
  return id;
}

ValueId ForwardBuilder::Fixed(const std::string& name, Dim of, Init init) {
  const Shape shape{of.size};
  WeightDeclaration weight{
      .name = InGraph(name), .shape = shape, .init = init, .source = WeightSource(TensorOf(name, shape))};
  if (of.label != DimLabel::kNone) weight.labels.Append(of.label);  // else every rank has it
  return AddFixed(std::move(weight));
}

ValueId ForwardBuilder::FixedScalar(const std::string& name, double value) {
  return AddFixed({.name = InGraph(name),
                   .shape = {1},
                   .init = Init::kValue,
                   .value = value,
                   .source = WeightSource::Stack({TensorOf(name, {})})});
}

ValueId ForwardBuilder::Constant(int n, Shape shape) {
  const std::string name = "constant." + std::to_string(n) + "." + shape.ToString();
  const auto [it, fresh] = weights_.try_emplace(name, kNoValue);
  if (fresh) it->second = Source(name, {spec_.dtype, shape}, Role::kConstant);
  return it->second;
}

void ForwardBuilder::AddModule(const std::string& path, std::span<const ValueId> weights, const ModuleLayout& layout) {
  LinearModule module{.path = InGraph(path),
                      .tensors = InFiles(path + ".weight"),
                      .in = type(weights.front()).shape[1],
                      .layout = layout};
  for (const ValueId w : weights) {
    module.weights.push_back(graph().value(w).name);
    module.rows.push_back(type(w).shape[0]);
  }
  modules_.push_back(std::move(module));
}

ValueId ForwardBuilder::Linear(ValueId x_TI, const std::string& module, Dim out, Dim in, bool bias,
                               const std::string& name, const ModuleLayout& layout, Init init) {
  // Keep this order: the buffers of a Program follow it, and so do their addresses, which a resumed run compares.
  const ValueId b = bias ? Weight(module + ".bias", {out}, Init::kZero) : kNoValue;
  const std::string weight = module + ".weight";
  const ValueId w =
      layout.transposed
          ? Weight(weight, {out, in}, WeightSource::Columns(TensorOf(weight, {in.size, out.size}), 0, out.size), init)
          : Weight(weight, {out, in}, init);
  AddModule(module, {&w, 1}, layout);
  return Linear(x_TI, w, b, name);
}

std::vector<ValueId> ForwardBuilder::FusedLinear(ValueId x_TI, const std::string& module,
                                                 std::initializer_list<Segment> segments, Dim in, bool bias,
                                                 const ModuleLayout& layout) {
  TEMPER_CHECK(layout.groups == 1 || !layout.transposed) << module;
  int64_t out = 0, first = 0;
  for (const Segment& s : segments) out += s.out.size;
  const std::string weight = module + ".weight", bias_of = module + ".bias";
  const FileTensor whole = TensorOf(weight, layout.transposed ? Shape{in.size, out} : Shape{out, in.size});
  const FileTensor shift = TensorOf(bias_of, {out});
  std::vector<ValueId> weights, outputs;
  for (const Segment& s : segments) {
    const std::string suffix = std::string("/") + s.name;
    TEMPER_CHECK(s.out.size % layout.groups == 0) << module << suffix << " in " << layout.groups << " groups";
    const int64_t rows = s.out.size / layout.groups;
    const auto rows_of = [&](const FileTensor& tensor) {
      return WeightSource::StridedRows(tensor, first, rows, out / layout.groups, layout.groups);
    };
    weights.push_back(Weight(weight + suffix, {s.out, in},
                             layout.transposed ? WeightSource::Columns(whole, first, rows) : rows_of(whole)));
    const ValueId b = bias ? Weight(bias_of + suffix, {s.out}, rows_of(shift), Init::kZero) : kNoValue;
    outputs.push_back(Linear(x_TI, weights.back(), b, s.name));
    first += rows;
  }
  AddModule(module, weights, layout);
  return outputs;
}

ValueId ForwardBuilder::Attend(ValueId q, KeysValues* kv, const Heads& heads, int block, const std::string& name) {
  Attributes attributes = {
      {"heads", heads.heads},
      {"kv_heads", heads.kv_heads},
      {"scale", heads.scale != 0 ? heads.scale : 1.0 / std::sqrt(static_cast<double>(heads.head_dim))},
      {"window", heads.window}};
  if (heads.softcap != 0) attributes.Set("softcap", heads.softcap);
  std::vector<ValueId> inputs = {q, kv->k, kv->v};
  // Decaying, whatever they begin as.
  const Init sink_init = heads.sinks_begin_at_zero ? Init::kValue : Init::kNormal;
  const ValueId sink = heads.sink.empty() ? kNoValue : Weight(heads.sink, {{DimLabel::kHeads, heads.heads}}, sink_init);
  if (sink != kNoValue) attributes.Set("sink", int64_t{1});
  if (!heads.slopes.empty()) attributes.Set("slopes", heads.slopes);
  if (heads.rounded_slopes) attributes.Set("rounded_slopes", int64_t{1});
  if (spec_.cache == 0) {
    attributes.Set("row", spec_.row > 0 ? spec_.row : spec_.tokens);
    inputs.push_back(document_start_);
    if (sink != kNoValue) inputs.push_back(sink);
    return Add(Op::kAttention, std::move(inputs), attributes, name)[0];
  }
  const int64_t rows = spec_.sequences * CachePagesOf(spec_.cache) * kCachePage;
  const int64_t v_head_dim = heads.v_head_dim > 0 ? heads.v_head_dim : heads.head_dim;
  const bool stored = kv->k_cache != kNoValue;
  if (!stored) {
    kv->k_cache = State("k", block, KeyCacheType(spec_.dtype, rows, heads.kv_heads, heads.head_dim));
    kv->v_cache = State("v", block, ValueCacheType(spec_.dtype, rows, heads.kv_heads, v_head_dim));
  }
  attributes.Set("page", kCachePage);
  if (stored) attributes.Set("stored", int64_t{1});
  inputs.insert(inputs.end(), {kv->k_cache, kv->v_cache, slot_, position_, page_table_});
  if (sink != kNoValue) inputs.push_back(sink);
  const auto outputs = Add(Op::kAttentionCached, std::move(inputs), attributes, name);
  if (stored) return outputs[0];
  Keep(kv->k_cache, outputs[1]);
  Keep(kv->v_cache, outputs[2]);
  kv->k_cache = outputs[1];
  kv->v_cache = outputs[2];
  return outputs[0];
}

ValueId ForwardBuilder::Convolved(ValueId x_TC, ValueId w_C1L, ValueId b_C, bool silu, const std::string& state,
                                  int block, const std::string& name) {
  Attributes attributes;
  if (silu) attributes.Set("silu", int64_t{1});
  if (b_C != kNoValue) attributes.Set("bias", int64_t{1});
  const auto with_bias = [b_C](std::vector<ValueId> inputs) {
    if (b_C != kNoValue) inputs.push_back(b_C);
    return inputs;
  };
  if (spec_.cache == 0) {
    return Add(Op::kShortConv, with_bias({x_TC, w_C1L, document_start_}), std::move(attributes), name)[0];
  }
  const Shape& w = type(w_C1L).shape;
  const ValueId before = RecurrentState(state, block, spec_.dtype, {w[2] - 1, w[0]});
  const auto outputs =
      Add(Op::kShortConvCached, with_bias({x_TC, w_C1L, before, slot_, position_}), std::move(attributes), name);
  Keep(before, outputs[1]);
  return outputs[0];
}

ValueId ForwardBuilder::ShortConv(ValueId x_TC, const std::string& module, const Taps& taps, int block,
                                  const std::string& name) {
  const ValueId w = Weight(module + ".weight", {taps.channels, {DimLabel::kNone, 1}, {DimLabel::kNone, taps.taps}});
  const ValueId b = taps.bias ? Weight(module + ".bias", {taps.channels}, Init::kZero) : kNoValue;
  return Convolved(x_TC, w, b, taps.silu, "conv", block, name);
}

void ForwardBuilder::FusedShortConv(const std::string& module, std::initializer_list<ConvSegment> segments,
                                    int64_t taps, bool bias, int block) {
  const Dim one{DimLabel::kNone, 1}, L{DimLabel::kNone, taps};
  int64_t channels = 0, first = 0;
  for (const ConvSegment& s : segments) channels += s.channels.size;
  const std::string weight = module + ".weight";
  const std::string bias_of = module + ".bias";
  const FileTensor whole = TensorOf(weight, {channels, 1, taps}), shift = TensorOf(bias_of, {channels});
  for (const ConvSegment& s : segments) {
    const std::string name = s.name;
    const ValueId w =
        Weight(weight + "/" + name, {s.channels, one, L}, WeightSource::Rows(whole, first, s.channels.size));
    const ValueId b = bias ? Weight(bias_of + "/" + name, {s.channels},
                                    WeightSource::Rows(shift, first, s.channels.size), Init::kZero)
                           : kNoValue;
    *s.x_TC = Convolved(*s.x_TC, w, b, /*silu=*/true, "conv_" + name, block, name + "_conv");
    first += s.channels.size;
  }
}

ValueId ForwardBuilder::GatedDelta(ValueId q, ValueId k, ValueId v, ValueId g, ValueId b, const DeltaHeads& heads,
                                   int block, const std::string& name) {
  Attributes attributes = {{"heads", heads.values}, {"key_heads", heads.keys}};
  if (spec_.cache == 0) {
    attributes.Set("row", spec_.row > 0 ? spec_.row : spec_.tokens);
    return Add(Op::kGatedDelta, {q, k, v, g, b, document_start_}, std::move(attributes), name)[0];
  }
  const int64_t key_dim = type(q).shape[1] / heads.keys, value_dim = type(v).shape[1] / heads.values;
  const ValueId before = RecurrentState("delta", block, DType::kF32, {heads.values, key_dim, value_dim});
  const auto outputs =
      Add(Op::kGatedDeltaCached, {q, k, v, g, b, before, slot_, position_}, std::move(attributes), name);
  Keep(before, outputs[1]);
  return outputs[0];
}

ValueId ForwardBuilder::Ssd(std::vector<ValueId> operands, const SsdHeads& heads, int block, const std::string& name) {
  Attributes attributes = {{"heads", heads.heads}, {"groups", heads.groups}};
  if (spec_.cache == 0) {
    attributes.Set("row", spec_.row > 0 ? spec_.row : spec_.tokens);
    operands.push_back(document_start_);
    return Add(Op::kSsd, std::move(operands), std::move(attributes), name)[0];
  }
  const int64_t value_dim = type(operands[0]).shape[1] / heads.heads,
                state_dim = type(operands[1]).shape[1] / heads.groups;
  const ValueId before = RecurrentState("ssd", block, DType::kF32, {heads.heads, state_dim, value_dim});
  operands.insert(operands.end(), {before, slot_, position_});
  const auto outputs = Add(Op::kSsdCached, std::move(operands), std::move(attributes), name);
  Keep(before, outputs[1]);
  return outputs[0];
}

ValueId ForwardBuilder::Sinusoids(const std::vector<double>& frequencies, int64_t shift, const std::string& name) {
  Attributes attributes = {{"inv_freq", frequencies}, {"sines_first", int64_t{1}}, {"shift", shift}};
  if (spec_.dtype == DType::kF64) attributes.Set("f64", int64_t{1});
  const ValueId table = Add(Op::kRopeTable, {position_}, std::move(attributes), name)[0];
  if (type(table).dtype == spec_.dtype) return table;
  return Add(Op::kCast, {table}, {{"dtype", std::string(ToString(spec_.dtype))}}, name + "_cast")[0];
}

ValueId ForwardBuilder::Dropout(ValueId x, double p, const std::string& name) {
  if (!spec_.training || p == 0) return x;
  return Add(Op::kDropout, {x, Rng()}, {{"p", p}}, name)[0];
}

ValueId ForwardBuilder::ScaleAsWeight(ValueId x, double factor, const std::string& name) {
  if (spec_.dtype == DType::kBF16) factor = ToFloat(FromFloat<bf16>(static_cast<float>(factor)));
  return Scale(x, factor, name);
}

ValueId ForwardBuilder::Noise(ValueId x_TD, const std::string& name) {
  if (!spec_.training || spec_.neftune_noise_alpha == 0) return x_TD;
  const auto elements = static_cast<double>(spec_.context() * type(x_TD).shape[1]);
  return Add(Op::kNoise, {x_TD, Rng()}, {{"magnitude", spec_.neftune_noise_alpha / std::sqrt(elements)}}, name)[0];
}

void ForwardBuilder::CountExperts(ValueId logits_TE, std::span<const ValueId> routed, int64_t block, int64_t blocks) {
  if (!spec_.counts_experts && !spec_.balances_experts) return;
  if (present_ == kNoValue) present_ = Column(kPresentColumn);
  const auto added_to = [](std::vector<ValueId> inputs, ValueId acc) {
    if (acc != kNoValue) inputs.push_back(acc);
    return inputs;
  };
  const auto has = [](ValueId acc) { return int64_t{acc != kNoValue}; };
  const bool last = block + 1 == blocks;
  active_ = type(routed[1]).shape[1];
  expert_load_ =
      Add(Op::kExpertLoad, added_to({routed[2], routed[1], present_}, expert_load_),
          {{"blocks", blocks}, {"experts", type(logits_TE).shape[1]}, {"block", block}, {"acc", has(expert_load_)}},
          "expert_load", last ? Role::kOutput : Role::kActivation)[0];
  if (last) graph().value(expert_load_).name = kExpertLoadOutput;
  if (!spec_.balances_experts) return;
  router_sum_ =
      Add(Op::kRouterSum, added_to({logits_TE, present_}, router_sum_), {{"acc", has(router_sum_)}}, "router_sum")[0];
}

void ForwardBuilder::BalanceExperts() {
  if (router_sum_ == kNoValue) return;
  const ValueId loss =
      Add(Op::kBalance, {expert_load_, router_sum_}, {{"active", active_}}, kBalanceOutput, Role::kOutput)[0];
  graph().roots().push_back({loss, Source(kBalanceSeedInput, {DType::kF32, {1}}, Role::kInput)});
}

ValueId ForwardBuilder::Rng() {
  if (rng_ == kNoValue) rng_ = Source(kRngInput, {DType::kI64, {kNumRngWords}}, Role::kInput);
  return rng_;
}

void ForwardBuilder::Head(ValueId x_TD, ValueId w_VD, const std::string& module, double softcap, bool bias) {
  const Dim V{DimLabel::kVocab, type(w_VD).shape[0]};
  const ValueId bias_V = bias ? Weight(module + ".bias", {V}, Init::kZero) : kNoValue;
  AddModule(module, {&w_VD, 1});
  modules_.back().is_head = true;
  EnterBlock(kBlockAfter, "");
  if (spec_.bare_head != nullptr) {
    *spec_.bare_head = {x_TD, w_VD, bias_V, softcap};
    return;
  }
  if (spec_.cache == 0) {
    spec_.objective->graph(spec_.graph)
        .tail({.rule = *spec_.objective,
               .f = *this,
               .tokens = spec_.tokens,
               .x_TD = x_TD,
               .w_VD = w_VD,
               .bias_V = bias_V,
               .softcap = softcap,
               .settings = spec_.objective_settings});
    BalanceExperts();
    return;
  }
  ValueId rows = x_TD;
  if (spec_.tokens > spec_.sequences) {
    rows = Embedding(x_TD, Source(kHeadRowsInput, {DType::kI32, {spec_.sequences}}, Role::kInput), 0, "rows_of_head");
  }
  std::vector<ValueId> operands = {rows, w_VD};
  if (bias) operands.push_back(bias_V);
  const Attributes in_f32 = {{"acc", int64_t{0}}, {"bias", int64_t{bias}}, {"out", std::string("f32")}};
  if (softcap == 0) {
    Add(Op::kLinear, std::move(operands), in_f32, kLogitsOutput, Role::kOutput);
    return;
  }
  const ValueId logits = Add(Op::kLinear, std::move(operands), in_f32, "uncapped_logits")[0];
  Add(Op::kSoftcap, {logits}, {{"cap", softcap}}, kLogitsOutput, Role::kOutput);
}

}  // namespace temper
