#include "compile/update.h"

#include <map>
#include <set>
#include <tuple>

#include "compile/grad_sync.h"
#include "graph/builder.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// Tags of gradients that stages give each other, above those of activations.
constexpr int64_t kFirstGradientTag = int64_t{1} << 32;

class UpdateBuilder {
 public:
  UpdateBuilder(const Graph& forward, const AdamwSpec& spec, const Mesh& mesh, bool reduces_gathered,
                const UpdateStage& stage)
      : forward_(forward), spec_(spec), mesh_(mesh), stage_(stage), build_(&graph_) {
    if (!reduces_gathered) return;
    for (GatheredUse& use : GatheredUses(forward)) gathered_[use.weight].push_back(std::move(use));
  }

  Graph Run() {
    scalars_ = build_.Source(kScalarsBuffer, {DType::kF64, {kNumScalars}}, Role::kInput);
    AddGradients();
    AddUpBetweenRanks();
    AddUpBetweenStages();
    const ValueId clip = Clip();
    for (const Trainable& t : trainables_) Adamw(t, clip);
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
    std::map<ValueId, int> blocks;  // of the node that first uses each source
    for (const Node& node : forward_.nodes()) {
      for (ValueId id : node.inputs) blocks.try_emplace(id, node.block);
    }
    std::set<std::string> seen;  // a weight that several stages hold is in the graph of all of them once for each
    for (ValueId id = 0; id < forward_.num_values(); ++id) {
      const Value& weight = forward_.value(id);
      if (!weight.trainable || !seen.insert(weight.name).second) continue;
      const auto block = blocks.find(id);
      TEMPER_CHECK(block != blocks.end()) << weight.name << " is trainable but nothing uses it";
      const TensorType type{DType::kF32, weight.type.shape};
      trainables_.push_back({id, block->second, kNoValue});
      if (!gathered_.contains(id)) {
        trainables_.back().gradient = build_.Source(GradientName(weight.name), type, Role::kGradient);
      }
    }
    for (size_t use = 0; ReduceGathered(use);) ++use;
  }

  // A gradient on its way back through the gathers of a use of its weight.
  struct Whole {
    Trainable* of;
    const GatheredUse* use;
    size_t gathers;  // of which are not undone yet
    ValueId value;
  };

  // The gradients of the `number`-th use of every weight that has so many; of a later use, added to those of the ones
  // before. False where there are none.
  bool ReduceGathered(size_t number) {
    std::vector<Whole> wholes;
    for (Trainable& t : trainables_) {
      const auto uses = gathered_.find(t.forward_id);
      if (uses == gathered_.end() || number >= uses->second.size()) continue;
      const GatheredUse& use = uses->second[number];
      const std::string name = WholeGradientName(t.in(forward_).name, static_cast<int>(number));
      const TensorType type{DType::kF32, forward_.value(use.whole()).type.shape};
      wholes.push_back({&t, &use, use.gathers.size(), build_.Source(name, type, Role::kGradient)});
    }
    const bool any = !wholes.empty();
    while (!wholes.empty()) {
      using Key = std::tuple<int, std::string, int64_t, bool>;  // block, axes, dim, whether it is added to others
      std::map<Key, std::vector<Whole*>> groups;
      for (Whole& w : wholes) {
        const Attributes& a = w.use->gathers[w.gathers - 1]->attributes;
        groups[{w.of->block, a.String("axes"), a.Int("dim"), number > 0 && w.gathers == 1}].push_back(&w);
      }
      for (const auto& [key, members] : groups) ReduceScatter(std::get<0>(key), members, std::get<3>(key));
      std::erase_if(wholes, [](const Whole& w) { return w.gathers == 0; });
    }
    return any;
  }

  void ReduceScatter(int block, const std::vector<Whole*>& members, bool acc) {
    std::vector<ValueId> inputs, accs;
    std::vector<double> sizes;
    const Attributes& gather = members[0]->use->gathers[members[0]->gathers - 1]->attributes;
    for (const Whole* w : members) {
      const Node& node = *w->use->gathers[w->gathers - 1];
      inputs.push_back(w->value);
      if (acc) accs.push_back(w->of->gradient);
      sizes.push_back(
          static_cast<double>(forward_.value(node.inputs[0]).type.shape[static_cast<int>(gather.Int("dim"))]));
    }
    inputs.insert(inputs.end(), accs.begin(), accs.end());
    build_.EnterBlock(block, "", Phase::kUpdate);
    const auto parts = build_.Add(Op::kReduceScatter, inputs,
                                  {{"axes", gather.String("axes")},
                                   {"ranks", gather.Int("ranks")},
                                   {"dim", gather.Int("dim")},
                                   {"sizes", std::move(sizes)},
                                   {"acc", int64_t{acc}}},
                                  "parts");
    for (size_t i = 0; i < members.size(); ++i) {
      Whole& w = *members[i];
      graph_.value(parts[i]).name = GradientName(w.of->in(forward_).name);
      w.value = parts[i];
      if (--w.gathers == 0) w.of->gradient = parts[i];
    }
  }

  // One collective per block and set of axes, so that few are made and none needs more than a block's gradients.
  void AddUpBetweenRanks() {
    std::map<std::pair<int, AxisSet>, std::vector<Trainable*>> groups;
    for (Trainable& t : trainables_) {
      const auto& shard = t.in(forward_).shard;
      if (shard && !shard->partial.empty()) groups[{t.block, shard->partial}].push_back(&t);
    }
    for (const auto& [key, members] : groups) {
      std::vector<ValueId> terms;
      for (const Trainable* t : members) terms.push_back(t->gradient);
      build_.EnterBlock(key.first, "", Phase::kUpdate);
      const auto sums = AllReduce(terms, key.second, "gradients");
      for (size_t i = 0; i < members.size(); ++i) {
        graph_.value(sums[i]).name = graph_.value(terms[i]).name;
        graph_.value(sums[i]).role = graph_.value(terms[i]).role;
        graph_.value(sums[i]).updates = terms[i];
        members[i]->gradient = sums[i];
      }
    }
  }

  // A weight that two stages use: each sends its gradient and adds the other's. IEEE addition commutes, so both get the
  // same bits. By name, which is an order that both have.
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

  // Of weights that several stages have the first counts.
  bool Counts(const std::string& name) const {
    const auto it = stage_.holders.find(name);
    return it == stage_.holders.end() || it->second[0] == stage_.stage;
  }

  ValueId Clip() {
    std::map<AxisSet, std::vector<Trainable*>> groups;
    for (Trainable& t : trainables_) {
      const std::string& name = t.in(forward_).name;
      if (!Counts(name)) continue;
      build_.EnterBlock(t.block, "", Phase::kUpdate);
      t.sum = build_.Add(Op::kSumSquares, {t.gradient}, {}, "sum_squares:" + name)[0];
      const auto& shard = t.in(forward_).shard;
      if (shard && !shard->split.empty()) groups[shard->split].push_back(&t);
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

  ValueId State(const std::string& name, const Value& weight) {
    const ValueId id = build_.Source(name, {DType::kF32, weight.type.shape}, Role::kOptimizerState);
    graph_.value(id).shard = weight.shard;
    return id;
  }

  void Adamw(const Trainable& t, ValueId clip) {
    const Value& weight = t.in(forward_);
    build_.EnterBlock(t.block, "", Phase::kUpdate);
    const bool has_master = weight.type.dtype != DType::kF32;
    const ValueId own = build_.Source(weight.name, weight.type, weight.role);
    graph_.value(own).trainable = true;
    graph_.value(own).shard = weight.shard;
    const ValueId master = has_master ? State(MasterName(weight.name), weight) : own;
    const ValueId m = State(AdamMName(weight.name), weight);
    const ValueId v = State(AdamVName(weight.name), weight);
    const double decay = weight.type.shape.rank() >= 2 ? spec_.weight_decay : 0.0;
    Attributes attributes = {{"beta1", spec_.beta1},
                             {"beta2", spec_.beta2},
                             {"eps", spec_.eps},
                             {"weight_decay", decay},
                             {"weight", int64_t{has_master}}};
    if (has_master) attributes.Set("dtype", std::string(ToString(weight.type.dtype)));
    const auto outputs = build_.Add(Op::kAdamw, {master, t.gradient, m, v, clip, scalars_}, std::move(attributes),
                                    "updated:" + weight.name);
    graph_.value(outputs[0]).updates = master;
    graph_.value(outputs[1]).updates = m;
    graph_.value(outputs[2]).updates = v;
    if (has_master) graph_.value(outputs[3]).updates = own;
  }

  const Graph& forward_;
  const AdamwSpec& spec_;
  const Mesh& mesh_;
  const UpdateStage& stage_;
  Graph graph_;
  GraphBuilder build_;
  ValueId scalars_ = kNoValue;
  std::vector<Trainable> trainables_;
  std::map<ValueId, std::vector<GatheredUse>> gathered_;  // by weight
};

}  // namespace

Graph BuildUpdate(const Graph& forward, const AdamwSpec& spec, const Mesh& mesh, bool reduces_gathered,
                  const UpdateStage& stage) {
  return UpdateBuilder(forward, spec, mesh, reduces_gathered, stage).Run();
}

}  // namespace temper
