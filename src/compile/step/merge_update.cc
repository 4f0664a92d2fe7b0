#include "compile/step/merge_update.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace temper {
namespace {

// Nodes are numbered from 1: 0 is the beginning of the graph.
class Merger {
 public:
  explicit Merger(Graph last) : nodes_(std::move(last.nodes())), graph_(std::move(last)), behind_(nodes_.size() + 1) {
    graph_.nodes().clear();
    made_.assign(static_cast<size_t>(graph_.num_values()), 0);
    touched_ = made_;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const size_t done = nodes_[i].attributes.Flag("background") ? EndOfNextSegment(i) : i + 1;
      for (const ValueId id : nodes_[i].inputs) Touch(id, done);
      for (const ValueId id : nodes_[i].outputs) {
        made_[At(id)] = done;
        Touch(id, done);
      }
    }
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const Value& value = graph_.value(id);
      if (value.role == Role::kActivation) continue;
      // A value that updates another one comes after it. Else one would be overwritten before the other is read.
      const auto [newest, fresh] = newest_.insert_or_assign(value.name, id);
      TEMPER_CHECK(fresh || value.updates != kNoValue || !value.trainable) << newest->first << " is there twice";
    }
  }

  void Add(const Graph& update) {
    std::vector<bool> made(static_cast<size_t>(update.num_values()), false);
    for (const Node& node : update.nodes()) {
      for (const ValueId id : node.outputs) made[At(id)] = true;
    }
    std::vector<ValueId> own;  // of the values of `update`
    for (ValueId id = 0; id < update.num_values(); ++id) {
      Value value = update.value(id);
      const auto known = newest_.find(value.name);
      if (!made[At(id)] && known != newest_.end()) {
        own.push_back(known->second);
        continue;
      }
      if (value.updates != kNoValue) value.updates = own[At(value.updates)];
      own.push_back(graph_.AddValue(std::move(value)));
      made_.push_back(0);
      touched_.push_back(0);
    }
    for (Node node : update.nodes()) {
      for (auto* list : {&node.inputs, &node.outputs}) {
        for (ValueId& id : *list) id = own[At(id)];
      }
      Insert(std::move(node));
    }
  }

  Graph Finish(bool alone) {
    const auto add = [&](std::vector<Node>& list) {
      for (Node& node : list) graph_.AddNode(std::move(node));
    };
    add(behind_[0]);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      graph_.AddNode(std::move(nodes_[i]));
      add(behind_[i + 1]);
    }
    for (ValueId id = 0; alone && id < graph_.num_values(); ++id) {
      Value& value = graph_.value(id);
      if (value.role == Role::kGradient) value.role = Role::kActivation;
    }
    return std::move(graph_);
  }

 private:
  static size_t At(ValueId id) { return static_cast<size_t>(id); }

  void Touch(ValueId id, size_t node) {
    size_t& last = touched_[At(graph_.Root(id))];
    last = std::max(last, node);
  }

  // Until then, other nodes hide the background node (compile/layout/layout.cc keeps its operands for as long).
  size_t EndOfNextSegment(size_t node) const {
    const auto end_of = [&](size_t i) {
      size_t end = i;
      while (end < nodes_.size() && nodes_[end].phase == nodes_[i].phase && nodes_[end].block == nodes_[i].block) ++end;
      return end;
    };
    const size_t own = end_of(node);
    return own < nodes_.size() ? end_of(own) : own;
  }

  void Insert(Node node) {
    size_t behind = 0;
    for (const ValueId id : node.inputs) behind = std::max(behind, made_[At(id)]);
    for (const ValueId id : node.outputs) {
      if (graph_.value(id).updates != kNoValue) behind = std::max(behind, touched_[At(graph_.Root(id))]);
    }
    for (const ValueId id : node.inputs) Touch(id, behind);
    for (const ValueId id : node.outputs) {
      made_[At(id)] = behind;
      Touch(id, behind);
    }
    if (behind < nodes_.size()) {
      const Node& place = nodes_[behind == 0 ? 0 : behind - 1];
      node.phase = place.phase;
      node.block = place.block;
    }
    behind_[behind].push_back(std::move(node));
  }

  std::vector<Node> nodes_;  // of the micro-batch
  Graph graph_;
  std::vector<size_t> made_;                         // per value: the node after which it exists
  std::vector<size_t> touched_;                      // per root: the node after which nothing reads or writes it
  std::unordered_map<std::string, ValueId> newest_;  // persistent values, by name
  std::vector<std::vector<Node>> behind_;
};

}  // namespace

Graph MergeUpdate(Graph last, const Graph& update, bool alone) {
  Merger merger(std::move(last));
  merger.Add(update);
  return merger.Finish(alone);
}

}  // namespace temper
