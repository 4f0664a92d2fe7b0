#include "compile/mesh/feed_forward.h"

#include <vector>

#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper {
namespace {

class Finder {
 public:
  Finder(const Graph& forward, const std::map<std::string, Sharding>& weights) : graph_(forward), weights_(weights) {
    maker_.assign(static_cast<size_t>(graph_.num_values()), nullptr);
    for (const Node& node : graph_.nodes()) {
      for (const ValueId id : node.outputs) maker_[static_cast<size_t>(id)] = &node;
    }
  }

  std::set<const Node*> Run() {
    FindCombined();
    std::set<const Node*> products;
    for (const Node& node : graph_.nodes()) {
      if (!SplitsDim(node, 1) || combined_.contains(node.outputs[0])) continue;
      std::set<const Node*> columns;
      if (!FindColumns(node.inputs[0], &columns)) continue;
      products.insert(&node);
      products.merge(columns);
    }
    return products;
  }

 private:
  // Every tensor rank combines the rows of all tokens. So the products whose rows go into `combine`, and those of their
  // adapters, which are added to them, must be of all tokens, too.
  void FindCombined() {
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      if (node.op == Op::kCombine) combined_.insert(node.inputs[0]);
      if (node.op != Op::kLinear || !combined_.contains(node.outputs[0])) continue;
      if (node.attributes.Flag("acc")) combined_.insert(node.inputs.back());
      if (!SplitsDim(node, 1)) combined_.insert(node.inputs[0]);
    }
  }

  // Whether tensor ranks split dim `dim` of a linear's weight [out, in].
  bool SplitsDim(const Node& node, int dim) const {
    if (node.op != Op::kLinear) return false;
    if (graph_.value(node.inputs[1]).type.dtype.quantised()) return false;  // columns of such are not gathered
    const auto it = weights_.find(graph_.value(node.inputs[1]).name);
    return it != weights_.end() && !(it->second.split(dim) & kTensorAxes).empty();
  }

  // Follows `id` back to the products that make its columns. False if another kind of node comes first.
  bool FindColumns(ValueId id, std::set<const Node*>* columns) const {
    const Node* const node = maker_[static_cast<size_t>(id)];
    if (node == nullptr) return false;
    if (RuleOf(node->op).kind == OpKind::kElementwise) {
      for (const ValueId input : node->inputs) {
        if (graph_.value(input).role == Role::kActivation && !FindColumns(input, columns)) return false;
      }
      return true;
    }
    if (!SplitsDim(*node, 0)) return false;
    columns->insert(node);
    return !node->attributes.Flag("acc") || FindColumns(node->inputs.back(), columns);
  }

  const Graph& graph_;
  const std::map<std::string, Sharding>& weights_;
  std::vector<const Node*> maker_;  // per value
  std::set<ValueId> combined_;
};

}  // namespace

std::set<const Node*> FeedForwardProducts(const Graph& forward, const std::map<std::string, Sharding>& weights) {
  return Finder(forward, weights).Run();
}

}  // namespace temper
