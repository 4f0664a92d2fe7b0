#include "compile/mesh/grad_sync.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "graph/rule.h"
#include "graph/traffic_ops.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// By default, whole gradients may take at most this part of a rank's weights, gradients and states.
constexpr double kSpare = 0.1;

std::string WholeName(const std::string& weight, int use) {
  return use == 0 ? weight + ".whole" : fmt::format("{}.whole.{}", weight, use);
}

Bytes F32BytesOf(const Shape& shape) {
  return TensorType{DType::kF32, shape}.bytes();
}

// What an update of a trained value works on beside the value: its gradient, its states and, if it is not f32, a
// master.
Bytes BytesOfUpdate(const Value& value, const UpdateSpec& update) {
  const Shape& shape = value.type.shape;
  Bytes bytes = F32BytesOf(shape) * (value.type.dtype == DType::kF32 ? 1 : 2);  // rounded ones are widened beside it
  const UpdateGroup group = update.Of(value);
  const UpdateRule& rule = update.RuleOf(group);
  for (const UpdateState* state : rule.StatesOf(rule.SettingsFor(update.SettingsOf(group), shape))) {
    bytes += state->TypeOf(shape).bytes();
  }
  if (update.averages()) bytes += F32BytesOf(shape);
  return bytes;
}

// Adds nodes after the makers of their inputs, with the makers' phase and block.
class Syncer {
 public:
  Syncer(Graph step, const Mesh& mesh)
      : mesh_(mesh), nodes_(std::move(step.nodes())), graph_(std::move(step)), behind_(nodes_.size()) {
    graph_.nodes().clear();
    std::vector<bool> updated(static_cast<size_t>(graph_.num_values()));
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const Value& value = graph_.value(id);
      if (value.updates != kNoValue) updated[static_cast<size_t>(value.updates)] = true;
      if (value.trainable) weights_.emplace(GradientName(value.name), id);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const ValueId id : nodes_[i].outputs) {
        const Value& value = graph_.value(id);
        if (value.role == Role::kGradient && !updated[static_cast<size_t>(id)]) last_.push_back({id, i});
      }
    }
  }

  // Reduces the gradients of whole weights back through the gathers; gradients of later uses are added to the first's.
  void Reduce(const std::vector<GatheredUse>& whole, const Graph& forward) {
    std::unordered_map<std::string, std::vector<size_t>> made;  // by name; several if stages share a weight
    for (size_t k = 0; k < last_.size(); ++k) made[graph_.value(last_[k].id).name].push_back(k);
    std::map<ValueId, int> count;
    std::map<std::string, std::vector<size_t>> parts;  // by weight: those of first uses
    for (const GatheredUse& use : whole) {
      const std::string& weight = forward.value(use.weight).name;
      const int number = count[use.weight]++;
      // Each is taken once: another stage's use has the same name and gathers.
      const std::vector<size_t> terms = std::exchange(made[WholeGradientName(weight, number)], {});
      if (terms.empty()) continue;
      if (number == 0) {
        for (const size_t k : terms) last_[k] = ReduceScatter(use, forward, last_[k], nullptr);
        parts[weight] = terms;
        continue;
      }
      TEMPER_CHECK(terms.size() == 1 && parts.at(weight).size() == 1) << weight << " is used twice, and by two stages";
      Made &part = last_[parts.at(weight)[0]], &term = last_[terms[0]];
      part = ReduceScatter(use, forward, term, &part);
      term.id = kNoValue;
    }
  }

  void AddUp() {
    for (const Made& made : last_) {
      if (made.id == kNoValue) continue;
      Value sum = graph_.value(made.id);
      const std::optional<Shard>& shard = graph_.value(weights_.at(sum.name)).shard;
      if (!shard || shard->partial.empty()) continue;
      sum.updates = made.id;
      const Attributes attributes = {{"axes", shard->partial.ToString()},
                                     {"ranks", int64_t{mesh_.size(shard->partial)}}};
      const ValueId id = graph_.AddValue(std::move(sum));
      Add({.op = TrafficOp::kAllReduce, .inputs = {made.id}, .outputs = {id}, .attributes = attributes}, made.node);
    }
  }

  Graph Finish() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      graph_.AddNode(std::move(nodes_[i]));
      for (Node& node : behind_[i]) graph_.AddNode(std::move(node));
    }
    return std::move(graph_);
  }

 private:
  // The current value of a gradient, and the node after which it exists. kNoValue: it is part of another gradient.
  struct Made {
    ValueId id;
    size_t node;
  };

  void Add(Node node, size_t behind) {
    node.block = nodes_[behind].block;
    node.phase = nodes_[behind].phase;
    behind_[behind].push_back(std::move(node));
  }

  // `acc`: the value that the part is added to, or nullptr.
  Made ReduceScatter(const GatheredUse& use, const Graph& forward, Made term, const Made* acc) {
    for (size_t k = use.gathers.size(); k-- > 0;) {
      const Node& gather = *use.gathers[k];
      const Value& from = forward.value(gather.inputs[0]);
      const bool is_part = k == 0, adds = is_part && acc != nullptr;
      std::vector<ValueId> inputs = {term.id};
      if (adds) {
        inputs.push_back(acc->id);
        term.node = std::max(term.node, acc->node);
      }
      term.id = graph_.AddValue({.name = GradientName(from.name),
                                 .type = {DType::kF32, from.type.shape},
                                 .role = is_part ? Role::kGradient : Role::kActivation,
                                 .updates = adds ? acc->id : kNoValue});
      const double size = static_cast<double>(from.type.shape[static_cast<int>(gather.attributes.Int("dim"))]);
      Add({.op = TrafficOp::kReduceScatter,
           .inputs = std::move(inputs),
           .outputs = {term.id},
           .attributes = {{"axes", gather.attributes.String("axes")},
                          {"ranks", gather.attributes.Int("ranks")},
                          {"dim", gather.attributes.Int("dim")},
                          {"sizes", std::vector<double>{size}},
                          {"acc", int64_t{adds}}}},
          term.node);
    }
    return term;
  }

  const Mesh& mesh_;
  std::vector<Node> nodes_;  // of the given graph
  Graph graph_;
  std::map<std::string, ValueId> weights_;  // by name of gradient
  std::vector<Made> last_;                  // per gradient
  std::vector<std::vector<Node>> behind_;   // per node of the given graph
};

}  // namespace

std::vector<GatheredUse> GatheredUses(const Graph& local) {
  std::map<ValueId, GatheredUse> at;          // by partly gathered value
  std::set<ValueId> used_otherwise;           // weights that a node other than a gather reads
  std::map<ValueId, std::set<ValueId>> ends;  // per weight: gathered values that are computed with
  for (const Node& node : local.nodes()) {
    for (const ValueId id : node.inputs) {
      const bool gathers = node.op == TrafficOp::kAllGather;
      const bool weight = local.value(id).trainable;
      if (gathers && (weight || at.contains(id))) {
        GatheredUse use = weight ? GatheredUse{.weight = id} : at.at(id);
        use.gathers.push_back(&node);
        at[node.outputs[0]] = std::move(use);
      } else if (weight) {
        used_otherwise.insert(id);
      } else if (const auto it = at.find(id); it != at.end()) {
        ends[it->second.weight].insert(id);
      }
    }
  }
  std::vector<GatheredUse> uses;
  for (const auto& [weight, whole] : ends) {
    if (used_otherwise.contains(weight)) continue;
    for (const ValueId id : whole) uses.push_back(at.at(id));
  }
  return uses;
}

std::string WholeGradientName(const std::string& weight, int use) {
  return GradientName(WholeName(weight, use));
}

Graph TrainGathered(const Graph& local) {
  Graph marked = local;
  std::map<ValueId, int> count;
  for (const GatheredUse& use : GatheredUses(local)) {
    marked.value(use.weight).trainable = false;
    Value& whole = marked.value(use.whole());
    whole.trainable = true;
    whole.name = WholeName(local.value(use.weight).name, count[use.weight]++);
  }
  return marked;
}

void RestoreTrainable(const Graph& local, Graph* differentiated) {
  for (ValueId id = 0; id < local.num_values(); ++id) differentiated->value(id).trainable = local.value(id).trainable;
}

bool HasTerms(const Graph& graph) {
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (value.trainable && value.shard && !value.shard->partial.empty()) return true;
  }
  return false;
}

Graph SyncGradients(Graph last, const std::vector<GatheredUse>& whole, const Graph& forward, const Mesh& mesh) {
  Syncer syncer(std::move(last), mesh);
  syncer.Reduce(whole, forward);
  syncer.AddUp();
  return syncer.Finish();
}

GradSync DecideGradSync(const Graph& local, int micro_batches, const UpdateSpec& update, const DecisionOptions& options,
                        std::vector<Decision>* decisions) {
  const auto uses = GatheredUses(local);
  if (uses.empty() || micro_batches == 1) return GradSync::kMicroBatch;
  Bytes extra, sent, kept;
  AxisSet axes;
  for (const GatheredUse& use : uses) {
    extra += F32BytesOf(local.value(use.whole()).type.shape);
    for (const Node* gather : use.gathers) {
      const auto over = AxisSet::Parse(gather->attributes.String("axes"));
      TEMPER_CHECK(over.ok()) << over.status().message();
      axes |= *over;
      const int64_t ranks = gather->attributes.Int("ranks");
      sent += F32BytesOf(local.value(gather->outputs[0]).type.shape) * (ranks - 1) / ranks;
    }
  }
  for (ValueId id = 0; id < local.num_values(); ++id) {
    const Value& v = local.value(id);
    if (v.role != Role::kWeight && v.role != Role::kAdapter) continue;
    kept += v.type.bytes();
    if (v.trainable) kept += BytesOfUpdate(v, update);
  }
  GradSync choice = options.grad_sync;
  std::string reason = "requested";
  const auto earlier = options.kept.find("grad_sync");
  if (choice == GradSync::kAuto && earlier != options.kept.end()) {
    choice = earlier->second == "step" ? GradSync::kStep : GradSync::kMicroBatch;
    reason = "same as the resumed run";
  } else if (choice == GradSync::kAuto) {
    const double part = static_cast<double>(extra.v) / static_cast<double>(kept.v);
    choice = part <= kSpare ? GradSync::kStep : GradSync::kMicroBatch;
    reason =
        fmt::format("whole gradients take {} more, {:.1f} % of a rank's weights, gradients and states (limit {:.0f} %)",
                    ToString(extra), part * 100, kSpare * 100);
  }
  const Bytes each = sent * micro_batches;
  const bool step = choice == GradSync::kStep;
  decisions->push_back({.what = "grad_sync",
                        .chosen = step ? "step" : "micro_batch",
                        .rejected = step ? "micro_batch" : "step",
                        .sent = step ? sent : each,
                        .sent_otherwise = step ? each : sent,
                        .time = LinkTime(step ? sent : each, axes),
                        .time_otherwise = LinkTime(step ? each : sent, axes),
                        .reason = std::move(reason)});
  return choice;
}

}  // namespace temper
