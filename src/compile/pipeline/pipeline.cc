#include "compile/pipeline/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "graph/traffic_ops.h"
#include "tensor/mesh.h"

namespace temper {
namespace {

bool IsWeight(Role role) {
  return role == Role::kWeight || role == Role::kAdapter;
}

class Cutter {
 public:
  Cutter(const Graph& graph, const PipelineCut& cut)
      : graph_(graph), cut_(cut), chunks_(static_cast<size_t>(cut.chunks())) {}

  Result<PipelinedGraph> Run() {
    FindMakers();
    TEMPER_RETURN_IF_ERROR(FindCrossings());
    if (cut_.split_weights) MarkWeightNodes();
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (size_t i = 0; i < graph_.nodes().size(); ++i) {
        const Node& node = graph_.nodes()[i];
        if (node.phase == phase && !everywhere_[i] && Owns(ChunkOf(node))) Place(i);
      }
    }
    return Assemble();
  }

 private:
  using Nodes = std::vector<Node>;
  struct Chunk {
    Nodes parts[kNumPartKinds];
    Nodes before;                       // of its forward: nodes that depend only on inputs
    std::map<ValueId, ValueId> values;  // activations of the whole graph -> of this stage's graph
  };
  // A value that chunk `to` needs from another one. Numbered in the order of the makers.
  struct Crossing {
    ValueId id;
    int to;
    bool operator<(const Crossing& other) const { return std::pair(id, to) < std::pair(other.id, other.to); }
  };

  int ChunkOf(const Node& node) const { return cut_.ChunkOf(node.block); }
  bool Owns(int chunk) const { return cut_.StageOf(chunk) == cut_.stage; }
  Nodes& PartOf(int chunk, PartKind kind) {
    return chunks_[static_cast<size_t>(chunk)].parts[static_cast<size_t>(kind)];
  }

  // Values that depend only on inputs and constants are made wherever they are used.
  void FindMakers() {
    maker_.assign(static_cast<size_t>(graph_.num_values()), -1);
    everywhere_.assign(graph_.nodes().size(), false);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      everywhere_[i] = node.phase == Phase::kForward && node.rng_name.empty() &&
                       std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
                         const int maker = maker_[static_cast<size_t>(id)];
                         const Role role = graph_.value(id).role;
                         return maker >= 0 ? everywhere_[static_cast<size_t>(maker)]
                                           : role == Role::kInput || role == Role::kConstant;
                       });
      for (ValueId id : node.outputs) maker_[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  const Node* MakerOf(ValueId id) const {
    const int maker = maker_[static_cast<size_t>(id)];
    return maker < 0 ? nullptr : &graph_.nodes()[static_cast<size_t>(maker)];
  }
  bool IsEverywhere(ValueId id) const { return everywhere_[static_cast<size_t>(maker_[static_cast<size_t>(id)])]; }

  Status FindCrossings() {
    std::set<std::pair<int, Crossing>> crossings;  // by maker
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (everywhere_[i]) continue;
      const int to = ChunkOf(node);
      for (ValueId id : node.inputs) {
        const Node* maker = MakerOf(id);
        if (maker == nullptr || IsEverywhere(id) || ChunkOf(*maker) == to) continue;
        const int from = ChunkOf(*maker);
        const bool forward = from + 1 == to && maker->phase == Phase::kForward;
        if (!forward && from != to + 1) {
          return Unsupported(
              fmt::format("a pipeline hands values on from one run of blocks to the next, but {} {} uses {} {}",
                          ToString(node.op), OfBlock(node.block), graph_.value(id).name, OfBlock(maker->block)));
        }
        crossings.insert({maker_[static_cast<size_t>(id)], {id, to}});
      }
    }
    for (const auto& [maker, crossing] : crossings) tags_.emplace(crossing, static_cast<int64_t>(tags_.size()));
    return OkStatus();
  }

  // Marks nodes that only make gradients of weights, and nodes whose results only a collective among these sums.
  void MarkWeightNodes() {
    const auto& nodes = graph_.nodes();
    std::vector<std::vector<size_t>> users(static_cast<size_t>(graph_.num_values()));
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (ValueId id : nodes[i].inputs) users[static_cast<size_t>(id)].push_back(i);
    }
    weights_.assign(nodes.size(), false);
    for (size_t i = nodes.size(); i-- > 0;) {
      if (nodes[i].phase != Phase::kBackward) continue;
      weights_[i] = std::all_of(nodes[i].outputs.begin(), nodes[i].outputs.end(), [&](ValueId id) {
        if (graph_.value(id).role == Role::kGradient) return true;
        const auto& by = users[static_cast<size_t>(id)];
        return !by.empty() && std::all_of(by.begin(), by.end(),
                                          [&](size_t user) { return weights_[user] && IsCollective(nodes[user].op); });
      });
    }
  }

  // This stage's value for value `id` of the whole graph, as used by `chunk`.
  ValueId Take(ValueId id, int chunk) {
    const Node* maker = MakerOf(id);
    if (maker == nullptr) return Source(id);
    auto& values = chunks_[static_cast<size_t>(chunk)].values;
    if (const auto it = values.find(id); it != values.end()) return it->second;
    if (IsEverywhere(id)) {
      Emit(*maker, chunk, &chunks_[static_cast<size_t>(chunk)].before);
      return values.at(id);
    }
    return Receive(id, ChunkOf(*maker), chunk);
  }

  ValueId Source(ValueId id) {
    const auto [it, fresh] = sources_.try_emplace(id, kNoValue);
    if (fresh) it->second = Copy(id, 0);
    return it->second;
  }

  ValueId Copy(ValueId id, int chunk) {
    Value value = graph_.value(id);
    if (value.updates != kNoValue) value.updates = Take(value.updates, chunk);
    return result_.graph.AddValue(std::move(value));
  }

  ValueId Receive(ValueId id, int from, int chunk) {
    const bool forward = from < chunk;
    const TensorType& type = graph_.value(id).type;
    std::vector<double> shape;
    for (int d = 0; d < type.shape.rank(); ++d) shape.push_back(static_cast<double>(type.shape[d]));
    Attributes attributes = TransferTo(from, tags_.at({id, chunk}));
    attributes.Set("dtype", std::string(ToString(type.dtype)));
    attributes.Set("shape", std::move(shape));
    const ValueId received = result_.graph.AddValue({.name = graph_.value(id).name, .type = type});
    chunks_[static_cast<size_t>(chunk)].values[id] = received;
    Nodes& part = PartOf(chunk, forward ? PartKind::kReceiveForward : PartKind::kReceiveBackward);
    part.push_back({.op = TrafficOp::kRecv,
                    .outputs = {received},
                    .attributes = std::move(attributes),
                    .block = graph_.nodes()[static_cast<size_t>(maker_[static_cast<size_t>(id)])].block,
                    .phase = forward ? Phase::kForward : Phase::kBackward});
    return received;
  }

  Attributes TransferTo(int chunk, int64_t tag) const {
    return {{"axes", AxisSet(Axis::kPp).ToString()},
            {"peer", int64_t{cut_.StageOf(chunk)}},
            {"tag", tag},
            {"background", int64_t{1}}};
  }

  void Emit(const Node& node, int chunk, Nodes* to) {
    Node own = node;
    for (ValueId& id : own.inputs) id = Take(id, chunk);
    for (ValueId& id : own.outputs) {
      const ValueId whole = id;
      id = Copy(whole, chunk);
      chunks_[static_cast<size_t>(chunk)].values[whole] = id;
    }
    to->push_back(std::move(own));
  }

  // Adds node i to its part, with the sends of its results that other chunks need.
  void Place(size_t i) {
    const Node& node = graph_.nodes()[i];
    const int chunk = ChunkOf(node);
    const bool forward = node.phase == Phase::kForward;
    const bool weights = !forward && cut_.split_weights && weights_[i];
    Emit(node, chunk,
         &PartOf(chunk, forward   ? PartKind::kForward
                        : weights ? PartKind::kWeights
                                  : PartKind::kBackward));
    for (ValueId id : node.outputs) {
      for (const int to : {chunk + 1, chunk - 1}) {
        const auto tag = tags_.find({id, to});
        if (tag == tags_.end()) continue;
        // A value that a forward makes for the backward of the chunk
        // before (the loss's gradient) is sent when that backward is due.
        const bool ahead = to > chunk;
        PartOf(chunk, ahead ? PartKind::kForward : PartKind::kBackward)
            .push_back({.op = TrafficOp::kSend,
                        .inputs = {chunks_[static_cast<size_t>(chunk)].values.at(id)},
                        .attributes = TransferTo(to, tag->second),
                        .block = node.block,
                        .phase = ahead ? Phase::kForward : Phase::kBackward});
      }
    }
  }

  PipelinedGraph Assemble() {
    const auto add = [&](int chunk, PartKind kind) {
      Nodes& nodes = PartOf(chunk, kind);
      if (kind == PartKind::kReceiveForward || kind == PartKind::kReceiveBackward) {
        // In the order in which they are sent.
        std::stable_sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
          return a.attributes.Int("tag") < b.attributes.Int("tag");
        });
      }
      const size_t begin = result_.graph.nodes().size();
      if (kind == PartKind::kForward) {
        for (Node& node : chunks_[static_cast<size_t>(chunk)].before) result_.graph.AddNode(std::move(node));
      }
      for (Node& node : nodes) result_.graph.AddNode(std::move(node));
      result_.parts.push_back({kind, chunk, begin, result_.graph.nodes().size()});
    };
    for (int chunk = 0; chunk < cut_.chunks(); ++chunk) {
      if (!Owns(chunk)) continue;
      add(chunk, PartKind::kReceiveForward);
      add(chunk, PartKind::kForward);
    }
    for (int chunk = cut_.chunks(); chunk-- > 0;) {
      if (!Owns(chunk)) continue;
      for (const PartKind kind : {PartKind::kReceiveBackward, PartKind::kBackward, PartKind::kWeights})
        add(chunk, kind);
    }
    return std::move(result_);
  }

  const Graph& graph_;
  const PipelineCut& cut_;
  std::vector<int> maker_;        // per value: the node, or -1
  std::vector<bool> everywhere_;  // per node: every chunk that uses it makes it
  std::vector<bool> weights_;     // per node
  std::map<Crossing, int64_t> tags_;
  std::map<ValueId, ValueId> sources_;
  std::vector<Chunk> chunks_;
  PipelinedGraph result_;
};

}  // namespace

int PipelineCut::ChunkOf(int block) const {
  if (block == kBlockBefore) return 0;
  if (block == kBlockAfter) return chunks() - 1;
  return chunk_of_block[static_cast<size_t>(block)];
}

std::map<std::string, std::vector<int>> StagesOfWeights(const Graph& graph, const PipelineCut& cut) {
  std::map<std::string, std::set<int>> stages;
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.inputs) {
      const Value& value = graph.value(id);
      if (!IsWeight(value.role)) continue;
      stages[value.name].insert(cut.StageOf(cut.ChunkOf(node.block)));
    }
  }
  std::map<std::string, std::vector<int>> result;
  for (const auto& [name, of] : stages) result[name].assign(of.begin(), of.end());
  return result;
}

Graph SplitSharedWeights(const Graph& graph, const PipelineCut& cut, std::map<std::string, std::vector<int>>* holders) {
  for (const auto& [name, stages] : StagesOfWeights(graph, cut)) {
    if (stages.size() > 1) (*holders)[name] = stages;
  }
  Graph result;
  for (ValueId id = 0; id < graph.num_values(); ++id) result.AddValue(graph.value(id));
  std::map<ValueId, std::map<int, ValueId>> copies;  // per source and stage
  for (const Node& node : graph.nodes()) {
    Node own = node;
    const int stage = cut.StageOf(cut.ChunkOf(node.block));
    for (ValueId& id : own.inputs) {
      if (!IsWeight(graph.value(id).role)) continue;
      auto& of = copies[id];
      const auto it = of.find(stage);
      const ValueId copy = it != of.end() ? it->second : of.empty() ? id : result.AddValue(graph.value(id));
      of[stage] = copy;
      id = copy;
    }
    result.AddNode(std::move(own));
  }
  result.roots() = graph.roots();
  return result;
}

Result<PipelinedGraph> CutPipeline(const Graph& graph, const PipelineCut& cut) {
  return Cutter(graph, cut).Run();
}

}  // namespace temper
