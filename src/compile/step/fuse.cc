#include "compile/step/fuse.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper {
namespace {

std::vector<int> CountUses(const Graph& graph) {
  std::vector<int> uses(graph.num_values(), 0);
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.inputs) ++uses[id];
  }
  return uses;
}

bool IsPersistent(Role role) {
  return role != Role::kActivation;
}

// The linear node into which `residual` can be folded so that `product` becomes
// product + residual: the maker of `product`, or, if that already accumulates
// (a LoRA branch on its base product), the maker of its accumulator. -1: none.
class ResidualFolder {
 public:
  explicit ResidualFolder(const Graph& graph)
      : graph_(graph), uses_(CountUses(graph)), maker_(graph.num_values(), -1), folded_(graph.nodes().size(), false) {}

  void Made(ValueId id, size_t node) { maker_[id] = static_cast<int>(node); }
  int MakerOf(ValueId id) const { return maker_[id]; }
  void NoteFolded(int linear) { folded_[static_cast<size_t>(linear)] = true; }

  int Target(ValueId product, ValueId residual, int block) const {
    const int at = maker_[product];
    if (at < 0 || uses_[product] != 1 || IsPersistent(graph_.value(product).role)) return -1;
    const Node& linear = graph_.nodes()[static_cast<size_t>(at)];
    if (linear.op != Op::kLinear || linear.block != block || folded_[static_cast<size_t>(at)]) return -1;
    if (linear.attributes.Flag("acc")) return Target(linear.inputs.back(), residual, block);
    return maker_[residual] < at ? at : -1;
  }

 private:
  const Graph& graph_;
  const std::vector<int> uses_;
  std::vector<int> maker_;
  std::vector<bool> folded_;  // per node: a linear that took a residual
};

// Whether the node is x A^T of an adapter and nothing else: thin, and as its weight is a source, made at any place
// where x is.
bool IsAdapterProduct(const Graph& graph, const Node& node) {
  return node.op == Op::kLinear && node.inputs.size() == 2 && graph.value(node.inputs[1]).role == Role::kAdapter &&
         node.attributes.DoubleOr("scale", 1) == 1 && !node.attributes.Has("out");
}

// Two or three products of adapters that share x (those of q, k and v, or of gate and up) become one node, in the place
// of the first.
void JoinAdapterProducts(Graph* graph) {
  std::vector<Node>& nodes = graph->nodes();
  std::map<std::tuple<ValueId, int, Phase>, size_t> first_of;  // by x, block and phase: a node that may take more
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    if (!IsAdapterProduct(*graph, node)) continue;
    const auto [at, first] = first_of.try_emplace({node.inputs[0], node.block, node.phase}, i);
    if (first) continue;
    Node& joined = nodes[at->second];
    joined.inputs.push_back(node.inputs[1]);
    joined.outputs.push_back(node.outputs[0]);
    node.outputs.clear();
    if (joined.outputs.size() == 3) first_of.erase(at);
    if (joined.outputs.size() == 2) joined.op = Op::kLinears;
    joined.attributes = {{"third", int64_t{joined.outputs.size() == 3}}};
  }
  std::erase_if(nodes, [](const Node& n) { return n.outputs.empty(); });
}

// A product that only a scale reads (as of models that scale their residuals) is scaled before it is stored. Branches
// that add to it are scaled, too. Its gradients take the factor from the product. A bias would have to be scaled
// itself: such a product stays as it is.
void ScaleInProducts(Graph* graph) {
  std::vector<Node>& nodes = graph->nodes();
  const std::vector<int> uses = CountUses(*graph);
  std::vector<Node*> maker(static_cast<size_t>(graph->num_values()), nullptr);
  for (Node& scale : nodes) {
    for (const ValueId id : scale.outputs) maker[static_cast<size_t>(id)] = &scale;
    if (scale.op != Op::kScale) continue;
    std::vector<Node*> products;  // of the sum, the last one first
    for (ValueId term = scale.inputs[0]; term != kNoValue;) {
      Node* const product = maker[static_cast<size_t>(term)];
      const bool fits = product != nullptr && product->op == Op::kLinear && product->block == scale.block &&
                        !product->attributes.Flag("bias") && uses[static_cast<size_t>(term)] == 1 &&
                        !IsPersistent(graph->value(term).role);
      if (!fits) products.clear();
      if (!fits) break;
      products.push_back(product);
      term = product->attributes.Flag("acc") ? product->inputs.back() : kNoValue;
    }
    if (products.empty()) continue;
    const double factor = scale.attributes.Double("factor");
    for (Node* const product : products) {
      product->attributes.Set("scale", product->attributes.DoubleOr("scale", 1) * factor);
    }
    products.front()->outputs = std::move(scale.outputs);
    scale.outputs.clear();
    maker[static_cast<size_t>(products.front()->outputs[0])] = products.front();
  }
  std::erase_if(nodes, [](const Node& node) { return node.outputs.empty(); });
}

}  // namespace

Graph Fuse(Graph graph) {
  JoinAdapterProducts(&graph);
  ScaleInProducts(&graph);
  std::vector<Node>& nodes = graph.nodes();
  ResidualFolder folder(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& add = nodes[i];
    for (ValueId id : add.outputs) folder.Made(id, i);
    if (add.op != Op::kAdd) continue;
    if (!(graph.value(add.inputs[0]).type == graph.value(add.inputs[1]).type)) continue;  // a vector for every row
    for (size_t side = 0; side < 2; ++side) {
      const ValueId product = add.inputs[side], residual = add.inputs[1 - side];
      const int at = folder.Target(product, residual, add.block);
      if (at < 0) continue;
      Node& linear = nodes[static_cast<size_t>(at)];
      linear.inputs.push_back(residual);
      linear.attributes.Set("acc", int64_t{1});
      folder.NoteFolded(at);
      // The product's maker (the linear itself, or the branch that adds to it) now writes the sum.
      nodes[static_cast<size_t>(folder.MakerOf(product))].outputs = std::move(add.outputs);
      add.outputs.clear();
      break;
    }
  }
  std::erase_if(nodes, [](const Node& node) { return node.outputs.empty(); });
  return graph;
}

std::vector<ValueId> TakenOver(const Graph& graph) {
  std::vector<ValueId> from(graph.num_values(), kNoValue);
  std::vector<int> last_use(graph.num_values(), -1);
  std::vector<bool> made(graph.num_values(), false), taken(graph.num_values(), false);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (ValueId id : graph.nodes()[i].inputs) last_use[id] = static_cast<int>(i);
    for (ValueId id : graph.nodes()[i].outputs) made[id] = true;
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).updates != kNoValue) taken[graph.value(id).updates] = true;
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const int position = OverwritableInput(node.op, node.attributes, static_cast<int>(node.inputs.size()), 0);
    if (position < 0) continue;
    const ValueId in = node.inputs[static_cast<size_t>(position)], out = node.outputs[0];
    const bool twice = std::count(node.inputs.begin(), node.inputs.end(), in) > 1;
    const Value& value = graph.value(out);
    if (twice || taken[in] || !made[in] || IsPersistent(graph.value(graph.Root(in)).role) || IsPersistent(value.role) ||
        value.updates != kNoValue || last_use[in] != static_cast<int>(i) || !(graph.value(in).type == value.type)) {
      continue;
    }
    from[out] = in;
    taken[in] = true;
  }
  return from;
}

Graph UpdateInPlace(Graph graph) {
  const std::vector<ValueId> from = TakenOver(graph);
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (from[id] != kNoValue) graph.value(id).updates = from[id];
  }
  return graph;
}

}  // namespace temper
