#include "compile/step/join_adapters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/named_ops.h"
#include "graph/ops/linear_operands.h"

namespace temper {
namespace {

// Finds products and their readers by node index; joined nodes are erased at the end.
class Joiner {
 public:
  explicit Joiner(Graph graph)
      : graph_(std::move(graph)),
        maker_(static_cast<size_t>(graph_.num_values()), -1),
        users_(static_cast<size_t>(graph_.num_values())),
        gone_(graph_.nodes().size(), false) {
    for (size_t i = 0; i < nodes().size(); ++i) {
      for (const ValueId id : nodes()[i].inputs) users_[static_cast<size_t>(id)].push_back(i);
      for (const ValueId id : nodes()[i].outputs) maker_[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }

  Graph Run() {
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (nodes()[i].op == Op::kLinear || nodes()[i].op == Op::kLinears) TakeScale(i);
    }
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (nodes()[i].op == Op::kLinear) JoinForward(i);
    }
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (nodes()[i].op == Op::kLinearDx || nodes()[i].op == Op::kLinearsDx) JoinBackward(i);
    }
    std::vector<Node> left;
    left.reserve(nodes().size());
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!gone_[i]) left.push_back(std::move(nodes()[i]));
    }
    graph_.nodes() = std::move(left);
    return std::move(graph_);
  }

 private:
  std::vector<Node>& nodes() { return graph_.nodes(); }
  static double ScaleOf(const Node& node) { return node.attributes.DoubleOr("scale", 1); }
  static bool InOnePlace(const Node& a, const Node& b) { return a.block == b.block && a.phase == b.phase; }
  const std::vector<size_t>& UsersOf(ValueId id) const { return users_[static_cast<size_t>(id)]; }

  // The node that makes `id`, if it is an `op` and `id` has one reader.
  std::optional<size_t> OnlyMaker(ValueId id, Op op) {
    const int at = maker_[static_cast<size_t>(id)];
    if (at < 0 || gone_[static_cast<size_t>(at)] || UsersOf(id).size() != 1) return std::nullopt;
    if (graph_.value(id).role != Role::kActivation || nodes()[static_cast<size_t>(at)].op != op) return std::nullopt;
    return static_cast<size_t>(at);
  }

  // If all readers of h = x A^T scale by the same number, h is scaled instead, but for the factor of the base product
  // that they add to. Recomputed h, which only the gradient of B reads, is treated alike, so that its bits match. With
  // tp, ranks add up or exchange h before it is read.
  void TakeScale(size_t at) {
    Node& node = nodes()[at];
    const LinearOperands places(node.attributes);
    if (places.num_inputs > 2 || ScaleOf(node) != 1) return;
    std::vector<size_t> readers;
    for (const ValueId h : node.outputs) {
      if (!FindReaders(h, &readers)) return;
    }
    if (readers.empty()) return;
    const double scale = ScaleOf(nodes()[readers[0]]);
    for (const size_t reader : readers) {
      if (ScaleOf(nodes()[reader]) != scale) return;
    }
    const double left = ScaleOfBases(node, readers);
    if (scale == left) return;
    node.attributes.Set("scale", scale / left);
    for (const size_t reader : readers) nodes()[reader].attributes.Set("scale", left);
  }
  // The factor of all base products that branches of h add to; 1 if they differ. Clones have the names of what they
  // recompute, which comes before them.
  double ScaleOfBases(const Node& makes_h, const std::vector<size_t>& readers) {
    const std::string& name = graph_.value(makes_h.outputs[0]).name;
    std::optional<double> scale;
    for (const size_t reader : readers) {
      const Node& branch = nodes()[reader];
      if (branch.op != Op::kLinear) continue;
      const auto base =
          OnlyMaker(branch.inputs[static_cast<size_t>(LinearOperands(branch.attributes).acc)], Op::kLinear);
      const double of_base = base ? ScaleOf(nodes()[*base]) : 1;
      if (scale && *scale != of_base) return scale_of_bases_[name] = 1;
      scale = of_base;
    }
    if (scale) return scale_of_bases_[name] = *scale;
    const auto found = scale_of_bases_.find(name);
    return found == scale_of_bases_.end() ? 1 : found->second;
  }
  // Adds the nodes that read h, or what collectives make of it. False if one of them is neither a branch nor the
  // gradient of its B.
  bool FindReaders(ValueId h, std::vector<size_t>* readers) {
    if (graph_.value(h).role != Role::kActivation) return false;
    for (const size_t user : UsersOf(h)) {
      const Node& reader = nodes()[user];
      if (IsReadTwice(reader, h)) return false;
      if (IsCollective(reader.op)) {
        if (reader.inputs.size() != 1 || reader.outputs.size() != 1 || !FindReaders(reader.outputs[0], readers)) {
          return false;
        }
        continue;
      }
      const bool is_branch = reader.op == Op::kLinear && reader.inputs[0] == h && reader.attributes.Flag("acc");
      const bool makes_d_b = reader.op == Op::kLinearDw && reader.inputs[1] == h;
      if (!is_branch && !makes_d_b) return false;
      readers->push_back(user);
    }
    return true;
  }
  static bool IsReadTwice(const Node& node, ValueId id) {
    return std::count(node.inputs.begin(), node.inputs.end(), id) > 1;
  }

  // `at` adds h B^T to a base product.
  void JoinForward(size_t at) {
    Node& branch = nodes()[at];
    const LinearOperands places(branch.attributes);
    if (places.acc < 0 || places.bias >= 0 || places.x2 >= 0) return;
    const ValueId h = branch.inputs[0], b = branch.inputs[1];
    const auto found = OnlyMaker(branch.inputs[static_cast<size_t>(places.acc)], Op::kLinear);
    if (!found || !IsAdapter(b)) return;
    Node& base = nodes()[*found];
    if (base.attributes.Flag("pair2") || ScaleOf(base) != ScaleOf(branch) || !InOnePlace(base, branch)) return;
    base.inputs.insert(base.inputs.begin() + 2, {h, b});
    base.attributes.Set("pair2", int64_t{1});
    base.outputs = branch.outputs;
    // In the place of the branch: h is made there, and of what the base product reads nothing changes in between.
    branch = std::move(base);
    gone_[*found] = true;
    for (const ValueId y : branch.outputs) maker_[static_cast<size_t>(y)] = static_cast<int>(at);
  }

  // A matrix of an adapter, or one that ranks have gathered.
  bool IsAdapter(ValueId id) {
    while (graph_.value(id).role != Role::kAdapter) {
      const int at = maker_[static_cast<size_t>(id)];
      if (at < 0) return false;
      const Node& node = nodes()[static_cast<size_t>(at)];
      const auto place = std::find(node.outputs.begin(), node.outputs.end(), id) - node.outputs.begin();
      if (!IsCollective(node.op) || node.inputs.size() != node.outputs.size()) return false;
      id = node.inputs[static_cast<size_t>(place)];
    }
    return true;
  }

  // `at` adds d_h A of one or more adapters to what products of their d_y come to, before it or behind it.
  void JoinBackward(size_t at) {
    Node& thin = nodes()[at];
    const bool acc = thin.attributes.Flag("acc");
    if (thin.attributes.Flag("pair2") || ScaleOf(thin) != 1) return;
    const size_t n = (thin.inputs.size() - acc) / 2;
    std::vector<size_t> chain = acc ? ProductsBefore(thin.inputs.back(), thin) : std::vector<size_t>();
    const size_t before = chain.size();
    ValueId sum = thin.outputs[0];
    while (const auto product = ProductBehind(sum, thin)) {
      chain.push_back(*product);
      sum = nodes()[*product].outputs[0];
    }
    std::vector<size_t> taken;
    for (size_t i = 0; i < n; ++i) {
      const auto base = std::find_if(chain.begin(), chain.end(), [&](size_t product) {
        return IsAdapter(thin.inputs[n + i]) && TakesPair(nodes()[product], product, thin.inputs[i]) &&
               std::find(taken.begin(), taken.end(), product) == taken.end();
      });
      if (base == chain.end()) return;
      taken.push_back(*base);
    }
    if (before < chain.size()) {  // the next product adds to what this one added to
      Node& next = nodes()[chain[before]];
      next.inputs.pop_back();
      if (acc) next.inputs.push_back(thin.inputs.back());
      next.attributes.Set("acc", int64_t{acc});
    } else {
      Node& last = nodes()[chain.front()];
      last.outputs = thin.outputs;
      maker_[static_cast<size_t>(thin.outputs[0])] = static_cast<int>(chain.front());
    }
    for (size_t i = 0; i < n; ++i) {
      Node& base = nodes()[taken[i]];
      DivideScale(thin.inputs[i], ScaleOf(base));
      base.inputs.insert(base.inputs.begin() + 2, {thin.inputs[i], thin.inputs[n + i]});
      base.attributes.Set("pair2", int64_t{1});
    }
    gone_[at] = true;
  }

  // Products whose sum is `sum`, the last one first.
  std::vector<size_t> ProductsBefore(ValueId sum, const Node& near) {
    std::vector<size_t> products;
    while (const auto product = OnlyMaker(sum, Op::kLinearDx)) {
      const Node& node = nodes()[*product];
      if (!InOnePlace(node, near)) break;
      products.push_back(*product);
      if (!node.attributes.Flag("acc")) break;
      sum = node.inputs.back();
    }
    return products;
  }
  // The product that adds to `sum`, which nothing else reads.
  std::optional<size_t> ProductBehind(ValueId sum, const Node& near) {
    if (UsersOf(sum).size() != 1 || graph_.value(sum).role != Role::kActivation) return std::nullopt;
    const size_t user = UsersOf(sum)[0];
    const Node& node = nodes()[user];
    if (gone_[user] || node.op != Op::kLinearDx || !InOnePlace(node, near)) return std::nullopt;
    if (!node.attributes.Flag("acc") || node.inputs.back() != sum) return std::nullopt;
    return user;
  }

  // Whether d_h was made of the d_y of `base`, before it.
  bool TakesPair(const Node& base, size_t at, ValueId d_h) {
    const int maker = maker_[static_cast<size_t>(d_h)];
    if (maker < 0 || static_cast<size_t>(maker) >= at || base.attributes.Flag("pair2")) return false;
    const Node& of_d_h = nodes()[static_cast<size_t>(maker)];
    if (of_d_h.op != Op::kLinearDx || of_d_h.inputs[0] != base.inputs[0]) return false;
    // The base product scales d_h A, too: d_h is made without that factor, which the gradient of A then takes.
    const std::vector<size_t>& users = UsersOf(d_h);
    return ScaleOf(base) == 1 || std::all_of(users.begin(), users.end(), [&](size_t user) {
             const Node& reader = nodes()[user];
             const bool makes_d_a = reader.op == Op::kLinearDw && reader.inputs[0] == d_h && !IsReadTwice(reader, d_h);
             return makes_d_a || reader.op == Op::kLinearDx || reader.op == Op::kLinearsDx;
           });
  }
  void DivideScale(ValueId d_h, double scale) {
    if (scale == 1) return;
    Node& maker = nodes()[static_cast<size_t>(maker_[static_cast<size_t>(d_h)])];
    maker.attributes.Set("scale", ScaleOf(maker) / scale);
    for (const size_t user : UsersOf(d_h)) {
      Node& reader = nodes()[user];
      if (reader.op == Op::kLinearDw) reader.attributes.Set("scale", ScaleOf(reader) * scale);
    }
  }

  Graph graph_;
  std::vector<int> maker_;                  // of each value: its node, or -1
  std::vector<std::vector<size_t>> users_;  // nodes that read it, once per operand
  std::vector<bool> gone_;
  std::map<std::string, double> scale_of_bases_;  // by the name of h
};

}  // namespace

Graph JoinAdapters(Graph graph) {
  return Joiner(std::move(graph)).Run();
}

}  // namespace temper
