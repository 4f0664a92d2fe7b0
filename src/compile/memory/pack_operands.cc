#include "compile/memory/pack_operands.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// A product of fewer rows or columns reads its long operand once and waits for memory: it packs as it goes, for free.
constexpr int64_t kFewLines = 64;

// What was just made and caches hold costs little to pack: two readers are enough. Else the panels go to memory and
// come back from there, for which, measured on a head of 49 MB, two products save no more than that takes.
constexpr Bytes kInCaches = MiB(8);
constexpr int64_t kReadsInCaches = 2, kReadsFromMemory = 3;

// Frozen weights are packed for the run, or not at all.
bool IsPackable(const Value& value) {
  return value.type.dtype == DType::kBF16 && value.type.shape.rank() == 2 && !value.type.packed() &&
         value.tier == Tier::kDevice && (value.role != Role::kWeight || value.trainable);
}
bool IsTrained(const Value& value) {
  return value.role == Role::kWeight && value.trainable && value.updates == kNoValue;
}

// How often a node goes over the operand that it may take packed, in each of its layouts; 0: it should not.
int64_t TimesOf(const Graph& graph, const Node& node) {
  const OpRule& rule = RuleOf(node.op);
  if (rule.packed.input < 0 || !IsPackable(graph.value(node.inputs[static_cast<size_t>(rule.packed.input)]))) return 0;
  const Types types = TypesOf(graph, node.inputs);
  const ProductDims dims = rule.product(types);
  if (std::min(dims.rows, dims.columns) <= kFewLines) return 0;
  return rule.packed.times != nullptr ? rule.packed.times(types, node.attributes) : 1;
}

// Calls visit(layout) for each layout in which a node takes that operand.
template <class Visit>
void ForLayouts(const Node& node, const Visit& visit) {
  const PackedInput& packed = RuleOf(node.op).packed;
  visit(packed.layout);
  if (packed.gradient != nullptr && node.attributes.Flag(packed.gradient)) visit(ElementLayout::kRowPairs);
}

ValueId OperandOf(const Node& node) {
  return node.inputs[static_cast<size_t>(RuleOf(node.op).packed.input)];
}

// Trained weights of which copies are kept for a step: by name and layout.
using Kept = std::set<std::pair<std::string, ElementLayout>>;

Kept KeptOf(const ProgramGraphs& step) {
  std::map<Kept::value_type, int64_t> reads;
  for (const ProgramGraphs::MicroBatches& some : step.micro_batches) {
    const Graph& graph = some.graph.graph;
    for (const Node& node : graph.nodes()) {
      const int64_t times = TimesOf(graph, node);
      if (times == 0 || !IsTrained(graph.value(OperandOf(node)))) continue;
      const std::string& name = graph.value(OperandOf(node)).name;
      ForLayouts(node, [&](ElementLayout layout) { reads[{name, layout}] += times * some.count; });
    }
  }
  Kept kept;
  for (const auto& [key, times] : reads) {
    if (times >= kReadsFromMemory) kept.insert(key);
  }
  return kept;
}

void AddPacking(ValueId from, ValueId to, const Node& place, Graph* graph) {
  graph->AddNode({.op = Op::kCast,
                  .inputs = {from},
                  .outputs = {to},
                  .attributes = {{"dtype", std::string(ToString(DType::kBF16))},
                                 {"layout", std::string(ToString(graph->value(to).type.layout))}},
                  .block = place.block,
                  .phase = place.phase});
}

Value PackedCopy(const Value& of, ElementLayout layout, Role role) {
  const bool rows = layout == ElementLayout::kRowPairs;
  return {.name = rows ? RowPairsName(of.name) : ColumnPairsName(of.name),
          .type = {DType::kBF16, of.type.shape, layout},
          .role = role};
}

// Rewrites one graph.
class Packer {
 public:
  // `fills`: this graph makes the kept copies, where it first needs them; else they are there.
  Packer(Graph graph, const Kept& kept, bool fills)
      : nodes_(std::move(graph.nodes())), graph_(std::move(graph)), kept_(kept), fills_(fills) {
    graph_.nodes().clear();
    graph_.nodes().reserve(nodes_.size());
    times_of_.reserve(nodes_.size());
    for (const Node& node : nodes_) times_of_.push_back(TimesOf(graph_, node));
  }

  // Adds the nodes [begin, end), which share copies. Returns the index behind the last one added.
  size_t Add(size_t begin, size_t end) {
    times_.clear();
    made_.clear();
    for (size_t i = begin; i < end; ++i) {
      if (times_of_[i] == 0) continue;
      ForLayouts(nodes_[i], [&](ElementLayout layout) { times_[{OperandOf(nodes_[i]), layout}] += times_of_[i]; });
    }
    for (size_t i = begin; i < end; ++i) {
      if (times_of_[i] > 0) TakePacked(&nodes_[i]);
      graph_.AddNode(std::move(nodes_[i]));
    }
    return graph_.nodes().size();
  }

  size_t num_nodes() const { return nodes_.size(); }
  Graph TakeGraph() { return std::move(graph_); }

 private:
  using Key = std::pair<ValueId, ElementLayout>;

  // Before the node itself is added.
  void TakePacked(Node* node) {
    const ValueId operand = OperandOf(*node);
    bool packs = true;
    ForLayouts(*node, [&](ElementLayout layout) { packs = packs && IsPacked({operand, layout}); });
    if (packs) ForLayouts(*node, [&](ElementLayout layout) { Take(CopyOf({operand, layout}, *node), node); });
  }

  void Take(ValueId copy, Node* node) const {
    const PackedInput& packed = RuleOf(node->op).packed;
    if (graph_.value(copy).type.layout == packed.layout) {
      node->inputs[static_cast<size_t>(packed.input)] = copy;
    } else {
      node->inputs.push_back(copy);
      node->attributes.Set(packed.of_gradient, int64_t{1});
    }
  }

  bool IsKept(const Key& key) const {
    const Value& value = graph_.value(key.first);
    return IsTrained(value) && kept_.contains({value.name, key.second});
  }
  bool IsPacked(const Key& key) const {
    const Value& value = graph_.value(key.first);
    const bool in_caches = value.role == Role::kActivation && value.type.bytes() <= kInCaches;
    return IsKept(key) || times_.at(key) >= (in_caches ? kReadsInCaches : kReadsFromMemory);
  }

  ValueId CopyOf(const Key& key, const Node& reader) {
    const bool kept = IsKept(key);
    const auto [it, fresh] = (kept ? copies_ : made_).try_emplace(key, kNoValue);
    if (!fresh) return it->second;
    const auto [id, layout] = key;
    it->second = graph_.AddValue(PackedCopy(graph_.value(id), layout, kept ? Role::kCache : Role::kActivation));
    if (!kept || fills_) AddPacking(id, it->second, reader, &graph_);
    return it->second;
  }

  std::vector<Node> nodes_;        // of the given graph
  std::vector<int64_t> times_of_;  // TimesOf each
  Graph graph_;
  const Kept& kept_;
  const bool fills_;
  std::map<Key, int64_t> times_;          // of the nodes at hand
  std::map<Key, ValueId> made_, copies_;  // for the nodes at hand; for the step
};

void PackOperandsIn(PipelinedGraph* graph, const Kept& kept, bool fills) {
  Packer packer(std::move(graph->graph), kept, fills);
  RewriteParts(
      packer.num_nodes(), [&](size_t begin, size_t end) { return packer.Add(begin, end); }, &graph->parts);
  graph->graph = packer.TakeGraph();
}

// For a pipeline: its micro-batches overlap, so that none is the one that fills the copies.
void FillBefore(const Graph& micro_batch, const Kept& kept, Graph* gathers) {
  std::map<std::string, ValueId> weights;  // of `gathers`
  for (ValueId id = 0; id < gathers->num_values(); ++id) {
    if (IsTrained(gathers->value(id))) weights.emplace(gathers->value(id).name, id);
  }
  for (ValueId id = 0; id < micro_batch.num_values(); ++id) {
    const Value& weight = micro_batch.value(id);
    if (!IsTrained(weight)) continue;
    for (const ElementLayout layout : {ElementLayout::kColumnPairs, ElementLayout::kRowPairs}) {
      if (!kept.contains({weight.name, layout})) continue;
      const auto [from, missing] = weights.try_emplace(weight.name, kNoValue);
      if (missing) from->second = gathers->AddValue(weight);
      AddPacking(from->second, gathers->AddValue(PackedCopy(weight, layout, Role::kCache)), {.op = Op::kCast}, gathers);
    }
  }
}

}  // namespace

void PackOperands(StepGraphs* graphs, bool keeps) {
  if (!graphs->trains()) return;
  const auto alone = [&] {
    return std::count_if(graphs->programs.begin(), graphs->programs.end(), [](const auto& p) { return p.trains; }) == 1;
  };
  for (ProgramGraphs& step : graphs->programs) {
    if (!step.trains) continue;
    const bool several = step.micro_batches.size() > 1 || step.micro_batches.front().count > 1;
    // If a step's micro-batches run in several Programs, no Program fills copies that another one reads.
    const Kept kept = keeps && several && alone() ? KeptOf(step) : Kept();
    if (step.pipeline) FillBefore(step.front(), kept, &step.pipeline->gathers);
    for (ProgramGraphs::MicroBatches& some : step.micro_batches) {
      PackOperandsIn(&some.graph, kept, !step.pipeline && &some == &step.micro_batches.front());
    }
  }
}

}  // namespace temper
