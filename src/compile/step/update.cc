#include "compile/step/update.h"

#include <map>
#include <set>

#include "graph/builder.h"
#include "graph/named_ops.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// Tags of gradients that stages exchange, above those of activations.
constexpr int64_t kFirstGradientTag = int64_t{1} << 32;

// Attributes of stochastic_round by which each element of a part draws what it draws in the whole.
Attributes PlaceInWhole(const Shape& part, const Shard& shard) {
  const Shape &whole = shard.global, &begin = shard.begin;
  const int64_t columns = whole.columns();
  if (part.rank() < 2) return {{"column", begin[0]}, {"columns", columns}};
  if (part.rank() == 2) return {{"row", begin[0]}, {"column", begin[1]}, {"columns", columns}};
  TEMPER_CHECK(part.rank() == 3) << part.ToString() << " of " << whole.ToString();
  return {{"row", begin[0] * part[1]},
          {"column", begin[1] * columns + begin[2]},
          {"columns", columns},
          {"packed_row", part[1]},
          {"drawn_row", whole[1]}};
}

class UpdateBuilder {
 public:
  UpdateBuilder(const Graph& forward, const UpdateSpec& spec, const Mesh& mesh, const UpdateStage& stage)
      : forward_(forward), spec_(spec), mesh_(mesh), stage_(stage), build_(&graph_) {}

  Graph Run() {
    scalars_ = build_.Source(kScalarsBuffer, {DType::kF64, {kNumScalars}}, Role::kInput);
    if (spec_.averages()) share_ = build_.Source(kAverageShareBuffer, {DType::kF64, {1}}, Role::kInput);
    if (spec_.stochastic_rounding) rng_ = build_.Source(kRoundingBuffer, {DType::kI64, {kNumRngWords}}, Role::kInput);
    AddGradients();
    AddUpBetweenStages();
    if (spec_.max_norm > 0) {
      for (Trainable& t : trainables_) SumSquares(&t);
      const ValueId clip = Clip();
      for (const Trainable& t : trainables_) Update(t, clip);
    } else {
      // The norm is only displayed: no weight waits for it.
      build_.EnterBlock(kBlockAfter, "", Phase::kUpdate);
      const ValueId factor = build_.Add(Op::kClip, {scalars_}, {{"max_norm", 0.0}}, "factor")[0];
      for (Trainable& t : trainables_) {
        SumSquares(&t);
        Update(t, factor);
      }
      Clip();
    }
    return std::move(graph_);
  }

 private:
  struct Trainable {
    ValueId forward_id;
    int block;
    ValueId gradient, sum = kNoValue;
    const Value& in(const Graph& graph) const { return graph.value(forward_id); }
  };

  void AddGradients() {
    std::map<ValueId, int> blocks;  // per source: the block of its first use
    for (const Node& node : forward_.nodes()) {
      for (ValueId id : node.inputs) blocks.try_emplace(id, node.block);
    }
    std::set<std::string> seen;  // a weight of several stages is in the graph once for each of them
    for (ValueId id = 0; id < forward_.num_values(); ++id) {
      const Value& weight = forward_.value(id);
      if (!weight.trainable || !seen.insert(weight.name).second) continue;
      const auto block = blocks.find(id);
      TEMPER_CHECK(block != blocks.end()) << weight.name << " is trainable but nothing uses it";
      const TensorType type{DType::kF32, weight.type.shape};
      trainables_.push_back({id, block->second, build_.Source(GradientName(weight.name), type, Role::kGradient)});
    }
  }

  // For a weight that two stages use: each sends its gradient and adds the other's. IEEE addition commutes, so both get
  // the same bits. In the order of names, which both share.
  void AddUpBetweenStages() {
    std::map<std::string, Trainable*> shared;
    for (Trainable& t : trainables_) {
      if (stage_.holders.contains(t.in(forward_).name)) shared[t.in(forward_).name] = &t;
    }
    int64_t tag = kFirstGradientTag;
    for (const auto& [name, holders] : stage_.holders) {
      const int64_t own_tag = tag++;
      const auto it = shared.find(name);
      if (it == shared.end()) continue;
      TEMPER_CHECK(holders.size() == 2) << name << " is shared by " << holders.size() << " stages";
      Trainable& t = *it->second;
      const Attributes transfer = {{"axes", AxisSet(Axis::kPp).ToString()},
                                   {"peer", int64_t{holders[0] == stage_.stage ? holders[1] : holders[0]}},
                                   {"tag", own_tag},
                                   {"background", int64_t{1}}};
      build_.EnterBlock(t.block, "", Phase::kUpdate);
      build_.Add(Op::kSend, {t.gradient}, transfer, "");
      const TensorType type = graph_.value(t.gradient).type;
      Attributes receive = transfer;
      receive.Set("dtype", std::string(ToString(type.dtype)));
      std::vector<double> shape;
      for (int d = 0; d < type.shape.rank(); ++d) shape.push_back(static_cast<double>(type.shape[d]));
      receive.Set("shape", std::move(shape));
      const ValueId theirs = build_.Add(Op::kRecv, {}, receive, "theirs:" + name)[0];
      const ValueId sum = build_.Add(Op::kAdd, {t.gradient, theirs}, {}, "")[0];
      graph_.value(sum).name = graph_.value(t.gradient).name;
      graph_.value(sum).role = Role::kGradient;
      graph_.value(sum).updates = t.gradient;
      t.gradient = sum;
    }
  }

  // A weight of several stages counts on the first one.
  bool Counts(const std::string& name) const {
    const auto it = stage_.holders.find(name);
    return it == stage_.holders.end() || it->second[0] == stage_.stage;
  }

  void SumSquares(Trainable* t) {
    const std::string& name = t->in(forward_).name;
    if (!Counts(name)) return;
    build_.EnterBlock(t->block, "", Phase::kUpdate);
    t->sum = build_.Add(Op::kSumSquares, {t->gradient}, {}, "sum_squares:" + name)[0];
  }

  ValueId Clip() {
    std::map<AxisSet, std::vector<Trainable*>> groups;
    for (Trainable& t : trainables_) {
      const auto& shard = t.in(forward_).shard;
      if (t.sum != kNoValue && shard && !shard->split.empty()) groups[shard->split].push_back(&t);
    }
    build_.EnterBlock(kBlockAfter, "", Phase::kUpdate);
    for (const auto& [axes, members] : groups) {
      std::vector<ValueId> terms;
      for (const Trainable* t : members) terms.push_back(t->sum);
      const auto sums = AllReduce(terms, axes, "sums_of_squares");
      for (size_t i = 0; i < members.size(); ++i) {
        graph_.value(sums[i]).updates = terms[i];
        members[i]->sum = sums[i];
      }
    }
    std::vector<ValueId> inputs;
    for (const Trainable& t : trainables_) {
      if (t.sum != kNoValue) inputs.push_back(t.sum);
    }
    if (mesh_.size(Axis::kPp) > 1) {
      const ValueId own = build_.Add(Op::kSumScalars, inputs, {}, "stage_sum")[0];
      inputs = AllReduce({own}, Axis::kPp, "sum");
    }
    inputs.push_back(scalars_);
    return build_.Add(Op::kClip, inputs, {{"max_norm", spec_.max_norm}}, kClipBuffer, Role::kOutput)[0];
  }

  std::vector<ValueId> AllReduce(const std::vector<ValueId>& terms, AxisSet axes, const std::string& name) {
    return build_.Add(Op::kAllReduce, terms, {{"axes", axes.ToString()}, {"ranks", int64_t{mesh_.size(axes)}}}, name);
  }

  ValueId State(const UpdateState& state, const Value& weight) {
    const ValueId id = build_.Source(state.NameOf(weight.name), state.TypeOf(weight.type.shape), Role::kOptimizerState);
    graph_.value(id).shard = weight.shard;
    if (weight.shard && state.of != UpdateState::Of::kElement) {
      const Shape &whole = weight.shard->global, &begin = weight.shard->begin;
      graph_.value(id).shard->global = state.TypeOf(whole).shape;
      graph_.value(id).shard->begin = state.BeginOf(whole, begin);
    }
    return id;
  }
  ValueId Master(const Value& weight) {
    const ValueId id = build_.Source(MasterName(weight.name), {DType::kF32, weight.type.shape}, Role::kOptimizerState);
    graph_.value(id).shard = weight.shard;
    return id;
  }

  void Update(const Trainable& t, ValueId clip) {
    const Value& weight = t.in(forward_);
    build_.EnterBlock(t.block, "", Phase::kUpdate);
    const bool rounds = spec_.stochastic_rounding && weight.type.dtype == DType::kBF16;
    const bool has_master = weight.type.dtype != DType::kF32 && !rounds;
    const ValueId own = build_.Source(weight.name, weight.type, weight.role);
    graph_.value(own).trainable = true;
    graph_.value(own).decays = weight.decays;
    graph_.value(own).update_group = weight.update_group;
    graph_.value(own).shard = weight.shard;
    const Shape& shape = weight.type.shape;
    const ValueId master = has_master ? Master(weight) : rounds ? Widened(own) : own;
    std::vector<ValueId> inputs = {master, t.gradient};
    const UpdateGroup group = spec_.Of(weight);
    const UpdateRule& rule = spec_.RuleOf(group);
    Attributes attributes = rule.SettingsFor(spec_.SettingsOf(group), shape);
    for (const UpdateState* state : rule.StatesOf(attributes)) inputs.push_back(State(*state, weight));
    inputs.insert(inputs.end(), {clip, scalars_});
    attributes.Set("weight_decay", weight.decays ? group.weight_decay : 0.0);
    if (group.lr_factor != 1) attributes.Set("lr_factor", group.lr_factor);
    attributes.Set("weight", int64_t{has_master});
    if (has_master) attributes.Set("dtype", std::string(ToString(weight.type.dtype)));
    const auto outputs = build_.Add(rule.op, inputs, std::move(attributes), "updated:" + weight.name);
    const UpdateOperands operands(graph_.nodes().back());
    for (size_t k = 0; k < operands.replacing(); ++k) {
      graph_.value(outputs[k]).updates = inputs[UpdateOperands::Replaced(k)];
    }
    if (has_master) graph_.value(outputs.back()).updates = own;
    if (rounds) Round(outputs[0], own);
    if (spec_.averages()) Average(weight, outputs[0], clip);
  }

  ValueId Widened(ValueId weight) {
    const std::string& name = graph_.value(weight).name;
    return build_.Add(Op::kCast, {weight}, {{"dtype", std::string(ToString(DType::kF32))}}, "widened:" + name)[0];
  }

  void Round(ValueId updated, ValueId weight) {
    const Value& value = graph_.value(weight);
    Attributes attributes;
    if (value.shard && !value.shard->split.empty()) attributes = PlaceInWhole(value.type.shape, *value.shard);
    const ValueId rounded =
        build_.Add(Op::kStochasticRound, {updated, rng_}, std::move(attributes), "rounded:" + value.name)[0];
    graph_.value(rounded).updates = weight;
  }

  // Of the f32 weight that the step has just made.
  void Average(const Value& weight, ValueId updated, ValueId clip) {
    const ValueId average = State(kAverageState, weight);
    const ValueId next = build_.Add(Op::kAverage, {average, updated, clip, share_}, {}, "averaged:" + weight.name)[0];
    graph_.value(next).updates = average;
  }

  const Graph& forward_;
  const UpdateSpec& spec_;
  const Mesh& mesh_;
  const UpdateStage& stage_;
  Graph graph_;
  GraphBuilder build_;
  ValueId scalars_ = kNoValue, share_ = kNoValue, rng_ = kNoValue;
  std::vector<Trainable> trainables_;
};

}  // namespace

void UpdateSpec::FillScalars(int64_t step, std::span<double> scalars) const {
  if (rule->fill_scalars != nullptr) rule->fill_scalars(settings, step, scalars);
  const UpdateRule* const others = rule->others();
  if (others != nullptr && others->fill_scalars != nullptr) others->fill_scalars(settings_of_others, step, scalars);
}

Graph BuildUpdate(const Graph& forward, const UpdateSpec& spec, const Mesh& mesh, const UpdateStage& stage) {
  return UpdateBuilder(forward, spec, mesh, stage).Run();
}

}  // namespace temper
