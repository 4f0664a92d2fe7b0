#include "compile/residency/residency.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "compile/layout/layout.h"
#include "compile/residency/copies.h"
#include "compile/residency/touches.h"
#include "graph/traffic_ops.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

// Windows by a node of theirs, those of a node in the order of the windows.
class WindowsOfNodes {
 public:
  // `node_of`: of a window; -1: of none.
  template <class NodeOf>
  WindowsOfNodes(size_t nodes, const std::vector<Window>& windows, const NodeOf& node_of) : first_(nodes + 1, 0) {
    for (const Window& w : windows) {
      if (const int node = node_of(w); node >= 0) ++first_[static_cast<size_t>(node)];
    }
    std::exclusive_scan(first_.begin(), first_.end(), first_.begin(), size_t{0});
    list_.resize(first_.back());
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    for (const Window& w : windows) {
      if (const int node = node_of(w); node >= 0) list_[next[static_cast<size_t>(node)]++] = &w;
    }
  }
  std::span<const Window* const> Of(size_t node) const {
    return {list_.data() + first_[node], list_.data() + first_[node + 1]};
  }

 private:
  std::vector<size_t> first_;  // per node, and at the end
  std::vector<const Window*> list_;
};

// Inserts the moves of the windows, and makes nodes work on the copies.
class Rewriter {
 public:
  Rewriter(const Graph& graph, const Touches& touches, const std::vector<Window>& windows, int64_t update_part)
      : graph_(graph), touches_(touches), windows_(windows), update_part_(update_part) {}

  PipelinedGraph Run(const std::vector<PipelinePart>& parts) {
    const size_t nodes = graph_.nodes().size();
    // A window takes a fetch and an evict, with a copy each; parts of updates take more.
    result_.Reserve(static_cast<size_t>(graph_.num_values()) + 2 * windows_.size(), nodes + 2 * windows_.size());
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      result_.AddValue(graph_.value(id));
      result_.value(id).tier = touches_.HomeOf(touches_.RootOf(id));
    }
    const WindowsOfNodes issued(nodes, windows_, [](const Window&w) { return w.reads ? w.issue : -1; }),
        begun(nodes, windows_, [](const Window&w) { return w.first; }),
        ended(nodes, windows_, [](const Window&w) { return w.last; });
    at_home_.assign(static_cast<size_t>(graph_.num_values()), kNoValue);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      // Sources are at home from the start; results of nodes, once they are made.
      if (touches_.IsTouched(id) && !MadeByItsFirstTouch(id)) at_home_[At(id)] = id;
    }
    std::vector<ValueId> fetched(windows_.size());
    open_.assign(at_home_.size(), nullptr);
    copy_.assign(at_home_.size(), kNoValue);
    last_made_ = copy_;
    std::vector<size_t> begin;  // per node: index of its first node in the result, moves included
    for (int i = 0; i < std::ssize(graph_.nodes()); ++i) {
      const auto n = static_cast<size_t>(i);
      begin.push_back(result_.nodes().size());
      for (const Window* w : issued.Of(n)) fetched[Index(w)] = Copy(*w, NodeAt(i));
      for (const Window* w : begun.Of(n)) {
        open_[At(w->root)] = w;
        copy_[At(w->root)] = w->reads ? fetched[Index(w)] : kNoValue;
      }
      if (touches_.IsCut(i)) {
        AddInParts(NodeAt(i));
      } else {
        AddNode(NodeAt(i), touches_.ProcessorOf(i));
      }
      for (const Window* w : ended.Of(n)) {
        if (w->writes_back) WriteBack(*w, copy_[At(w->root)], NodeAt(i));
        open_[At(w->root)] = nullptr;
      }
    }
    begin.push_back(result_.nodes().size());
    PipelinedGraph result{.graph = std::move(result_)};
    for (const PipelinePart& part : parts) {
      result.parts.push_back({part.kind, part.chunk, begin[part.begin], begin[part.end]});
    }
    return result;
  }

 private:
  static size_t At(ValueId id) { return static_cast<size_t>(id); }
  size_t Index(const Window* window) const { return static_cast<size_t>(window - windows_.data()); }
  const Node& NodeAt(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }

  bool MadeByItsFirstTouch(ValueId root) const {
    const Node& node = NodeAt(touches_.Of(root).front().node);
    return std::find(node.outputs.begin(), node.outputs.end(), root) != node.outputs.end();
  }

  // The window's copy, made by a node in the phase and block of `place`.
  ValueId Copy(const Window& w, const Node& place) {
    const ValueId from = at_home_[At(w.root)];
    const Value& value = graph_.value(w.root);
    TEMPER_CHECK(from != kNoValue) << value.name << " is fetched before it exists";
    const ValueId to = result_.AddValue({.name = value.name, .type = value.type, .tier = w.on});
    if (w.routed_by == kNoValue) {
      AddMove(from, to, /*background=*/true, place);
      return to;
    }
    result_.AddNode({.op = TrafficOp::kFetch,
                     .inputs = {from, at_home_[At(w.routed_by)]},
                     .outputs = {to},
                     .attributes = {{"background", int64_t{1}}, {"routed", int64_t{1}}},
                     .block = place.block,
                     .phase = place.phase});
    return to;
  }

  void AddMove(ValueId from, ValueId to, bool background, const Node& place) {
    result_.AddNode({.op = result_.value(to).tier < result_.value(from).tier ? TrafficOp::kFetch : TrafficOp::kEvict,
                     .inputs = {from},
                     .outputs = {to},
                     .attributes = background ? Attributes{{"background", int64_t{1}}} : Attributes(),
                     .block = place.block,
                     .phase = place.phase});
  }

  void AddNode(Node node, Tier processor) {
    const auto has_copy = [&](ValueId root) { return open_[At(root)] != nullptr && open_[At(root)]->on == processor; };
    for (ValueId& id : node.inputs) {
      const ValueId root = touches_.RootOf(id);
      if (has_copy(root)) {
        id = copy_[At(root)];
      } else if (at_home_[At(root)] != kNoValue) {
        id = at_home_[At(root)];
      }
    }
    for (ValueId& id : node.outputs) {
      const ValueId root = touches_.RootOf(id), updated = graph_.value(id).updates;
      if (!has_copy(root)) {
        if (updated != kNoValue) result_.value(id).updates = at_home_[At(root)];
        at_home_[At(root)] = id;
        continue;
      }
      last_made_[At(root)] = id;
      result_.value(id).updates = kNoValue;  // its home is updated when it is written back
      const Value& value = graph_.value(id);
      const ValueId fresh = result_.AddValue({.name = value.name,
                                              .type = value.type,
                                              .tier = processor,
                                              .updates = updated != kNoValue ? copy_[At(root)] : kNoValue});
      copy_[At(root)] = fresh;
      id = fresh;
    }
    result_.AddNode(std::move(node));
  }

  // Adds an update of states on the disk, a part at a time: while one part is updated, the next is fetched and the
  // previous one is written back.
  void AddInParts(const Node& whole_update) {
    const UpdateOperands operands(whole_update);
    const int64_t elements = graph_.value(whole_update.inputs[0]).type.shape.elements();
    std::vector<ValueId> whole;  // clipping factor and scalars
    for (size_t k = operands.tensors(); k < whole_update.inputs.size(); ++k) {
      const ValueId root = touches_.RootOf(whole_update.inputs[k]);
      const Window* const window = open_[At(root)];
      whole.push_back(window != nullptr && window->on == Tier::kHost ? copy_[At(root)] : at_home_[At(root)]);
    }
    std::vector<ValueId> next = FetchPart(whole_update, 0, elements);
    for (int64_t begin = 0; begin < elements; begin += update_part_) {
      const std::vector<ValueId> part = std::exchange(next, {});
      const bool last = begin + update_part_ >= elements;
      if (!last) next = FetchPart(whole_update, begin + update_part_, elements);
      Node update = whole_update;
      update.inputs = part;
      update.inputs.insert(update.inputs.end(), whole.begin(), whole.end());
      for (size_t k = 0; k < update.outputs.size(); ++k) {
        // Master and states overwrite the fetched ones, whose operands surround the gradient.
        const ValueId over = k < operands.replacing() ? part[UpdateOperands::Replaced(k)] : kNoValue;
        const Value& value = graph_.value(whole_update.outputs[k]);
        update.outputs[k] = result_.AddValue({.name = value.name,
                                              .type = {value.type.dtype, result_.value(part[0]).type.shape},
                                              .tier = Tier::kHost,
                                              .updates = over});
      }
      const std::vector<ValueId> made = update.outputs;
      result_.AddNode(std::move(update));
      for (size_t k = 0; k < made.size(); ++k) WritePart(made[k], whole_update.outputs[k], begin, last, whole_update);
    }
  }

  std::vector<ValueId> FetchPart(const Node& whole_update, int64_t begin, int64_t elements) {
    std::vector<ValueId> part;
    const int64_t count = std::min(update_part_, elements - begin);
    for (size_t k = 0; k < UpdateOperands(whole_update).tensors(); ++k) {
      const ValueId from = at_home_[At(touches_.RootOf(whole_update.inputs[k]))];
      const Value& value = result_.value(from);
      part.push_back(result_.AddValue({.name = value.name, .type = {value.type.dtype, {count}}, .tier = Tier::kHost}));
      AddMoveOfPart({from}, part.back(), {{"background", int64_t{1}}, {"begin", begin}, {"count", count}},
                    whole_update);
    }
    return part;
  }

  // `output`: the value of the given graph that is at home once the last part is written.
  void WritePart(ValueId part, ValueId output, int64_t begin, bool last, const Node& place) {
    const ValueId root = touches_.RootOf(output), before = at_home_[At(root)];
    ValueId made = output;
    if (!last) made = result_.AddValue({.name = graph_.value(output).name, .type = graph_.value(output).type});
    result_.value(made).tier = touches_.HomeOf(root);
    result_.value(made).updates = before;
    Attributes attributes{{"begin", begin}};
    // The copy of the last part stays at the host until the next segment has ended, of every weight of a block. Only
    // small parts may: large ones are waited for.
    if (!last || update_part_ <= kUpdatePart) attributes.Set("background", int64_t{1});
    AddMoveOfPart({part, before}, made, std::move(attributes), place);
    at_home_[At(root)] = made;
  }

  void AddMoveOfPart(std::vector<ValueId> inputs, ValueId to, Attributes attributes, const Node& place) {
    result_.AddNode(
        {.op = result_.value(to).tier < result_.value(inputs[0]).tier ? TrafficOp::kFetch : TrafficOp::kEvict,
         .inputs = std::move(inputs),
         .outputs = {to},
         .attributes = std::move(attributes),
         .block = place.block,
         .phase = place.phase});
  }

  // From here on, the value of the window's last write in the given graph is at home.
  void WriteBack(const Window& w, ValueId from, const Node& place) {
    const ValueId made = last_made_[At(w.root)];
    Value& value = result_.value(made);
    value.updates = at_home_[At(w.root)];
    if (value.updates == kNoValue) {
      value = graph_.value(w.root);
      value.updates = kNoValue;
      value.tier = touches_.HomeOf(w.root);
    }
    AddMove(from, made, w.holds, place);
    at_home_[At(w.root)] = made;
  }

  const Graph& graph_;
  const Touches& touches_;
  const std::vector<Window>& windows_;
  const int64_t update_part_;
  Graph result_;
  // Per root.
  std::vector<ValueId> at_home_;     // the value of the result that is at home
  std::vector<const Window*> open_;  // the window that serves the node at hand, or nullptr
  std::vector<ValueId> copy_;        // while a window is open: the current value of its copy
  std::vector<ValueId> last_made_;   // the value of the given graph made last
};

}  // namespace

LeastBytes LeastOnDevice(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec,
                         const NodeCosts& costs) {
  const Touches touches(graph, parts, spec);
  WorkingSets used = MeasureWorkingSets(graph, touches, spec, costs);
  LeastBytes least{.at = std::move(used[static_cast<size_t>(Tier::kDevice)])};
  for (size_t i = 0; i < least.at.size(); ++i) {
    if (least.at[i] <= least.bytes) continue;
    least.bytes = least.at[i];
    least.node = i;
  }
  return least;
}

PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec,
                      const NodeCosts& costs) {
  const Touches touches(graph, parts, spec);
  return Rewriter(graph, touches, FindWindows(graph, touches, spec, costs), spec.update_part).Run(parts);
}

PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec) {
  return Reside(graph, parts, spec, CostsOfNodes(graph, spec.rates, spec.threads));
}

}  // namespace temper
