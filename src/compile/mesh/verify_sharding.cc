#include "compile/mesh/verify_sharding.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "compile/mesh/partition.h"
#include "graph/rule.h"
#include "graph/traffic_ops.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

std::string Show(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis axis : axes) text += fmt::format("{}{}", text.empty() ? "" : "+", ToString(axis));
  return text.empty() ? "-" : text;
}

AxisSet SetOf(const std::vector<Axis>& axes) {
  AxisSet set;
  for (const Axis axis : axes) set |= axis;
  return set;
}

// "tp,copy,fsdp", outermost first. REQUIRES: a list that AxisSet::Parse takes.
std::vector<Axis> InOrder(std::string_view text) {
  std::vector<Axis> axes;
  while (!text.empty()) {
    const size_t n = std::min(text.find(','), text.size());
    axes.push_back(*ParseAxis(text.substr(0, n)));
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return axes;
}

bool BeginsWith(const std::vector<Axis>& axes, const std::vector<Axis>& prefix) {
  return prefix.size() <= axes.size() && std::equal(prefix.begin(), prefix.end(), axes.begin());
}

class Verifier {
 public:
  Verifier(const Mesh& mesh, const std::map<std::string, Sharding>& weights) : mesh_(mesh), weights_(weights) {}

  Status Check(const Graph& graph) {
    graph_ = &graph;
    given_ = gradients_;
    shardings_.assign(static_cast<size_t>(graph.num_values()), std::nullopt);
    for (const Node& node : graph.nodes()) {
      node_ = &node;
      std::vector<Sharding> outputs;
      TEMPER_RETURN_IF_ERROR(LoadSources());
      TEMPER_RETURN_IF_ERROR(IsCollective(node.op) ? Collective(&outputs) : Compute(&outputs));
      for (size_t i = 0; i < outputs.size(); ++i) {
        TEMPER_RETURN_IF_ERROR(Keep(node.outputs[i], std::move(outputs[i])));
      }
    }
    return OkStatus();
  }

 private:
  const Sharding& Of(ValueId id) const { return *shardings_[static_cast<size_t>(id)]; }
  const Sharding& OfInput(size_t i) const { return Of(node_->inputs[i]); }
  // The same, without the axes over which rows are dealt.
  const Sharding& OfOperand(size_t i) const { return undealt_.empty() ? OfInput(i) : undealt_[i]; }
  const std::string& Name(size_t input) const { return graph_->value(node_->inputs[input]).name; }
  int RankOf(size_t input) const { return graph_->value(node_->inputs[input]).type.shape.rank(); }

  Status Refuse(const std::string& why) const {
    const Node& n = *node_;
    return Corrupt(fmt::format("mesh {}: the {} node {} {} that makes {} is wrong: {}", mesh_.ToString(),
                               ToString(n.phase), ToString(n.op), OfBlock(n.block), graph_->value(n.outputs[0]).name,
                               why));
  }

  // Sets the shardings of the sources that the node reads, or overwrites without reading.
  Status LoadSources() {
    for (const ValueId id : node_->inputs) TEMPER_RETURN_IF_ERROR(LoadSource(id));
    for (const ValueId id : node_->outputs) {
      if (graph_->value(id).updates != kNoValue) TEMPER_RETURN_IF_ERROR(LoadSource(graph_->value(id).updates));
    }
    return OkStatus();
  }

  Status LoadSource(ValueId id) {
    auto& slot = shardings_[static_cast<size_t>(id)];
    if (slot) return OkStatus();
    const Value& v = graph_->value(id);
    slot.emplace();
    switch (v.role) {
      case Role::kWeight:
      case Role::kAdapter:
      case Role::kOptimizerState: {
        // Names of states end in a colon and the weight's name.
        const auto it = weights_.find(v.role == Role::kOptimizerState ? v.name.substr(v.name.find(':') + 1) : v.name);
        if (it == weights_.end()) return Refuse(v.name + " has no sharding");
        *slot = it->second;
        break;
      }
      case Role::kGradient: {
        const auto it = given_.find(v.name);
        if (it == given_.end()) return Refuse(v.name + " is used before any micro-batch made it");
        *slot = it->second;
        break;
      }
      case Role::kInput:
        if (v.per_token) slot->dims[0] = TokenAxes(mesh_).axes();
        break;
      default:
        break;  // constants: the same everywhere
    }
    return OkStatus();
  }

  Status Keep(ValueId id, Sharding sharding) {
    const Value& v = graph_->value(id);
    const ValueId root = graph_->Root(id);
    const Role role = graph_->value(root).role;
    if (v.role == Role::kGradient || role == Role::kGradient) gradients_[v.name] = sharding;
    if (v.role == Role::kOutput && !sharding.partial.empty()) {
      return Refuse(
          fmt::format("{} is read by the host, but is terms of a sum over {}", v.name, sharding.partial.ToString()));
    }
    const bool lasts = role == Role::kWeight || role == Role::kAdapter || role == Role::kOptimizerState;
    if (lasts && root != id && !(sharding == Of(root))) {
      return Refuse(fmt::format("it overwrites {}, which is split '{}', with a value split '{}'",
                                graph_->value(root).name, Of(root).ToString(v.type.shape.rank()),
                                sharding.ToString(v.type.shape.rank())));
    }
    shardings_[static_cast<size_t>(id)] = std::move(sharding);
    return OkStatus();
  }

  // ---- ops that compute

  struct Letter {
    char name;
    const std::vector<Axis>* axes;  // in the sharding of the operand `from`
    std::string_view from;
  };
  // One product of an output: the axes that its letters are split over, and those over which it is a term of a sum.
  struct Product {
    std::vector<Letter> letters;
    AxisSet partial;
    bool absent = true;  // it has no operand
    bool dealt = false;  // of rows that are dealt to ranks
    std::string_view from;
    const Letter* Find(char name) const {
      for (const Letter& l : letters) {
        if (l.name == name) return &l;
      }
      return nullptr;
    }
  };

  static char LetterOf(const char* dims, int rank, int d) {
    const int n = static_cast<int>(std::char_traits<char>::length(dims));
    const int at = n - rank + d;
    return at < 0 ? 'z' : dims[at];
  }

  Status Compute(std::vector<Sharding>* outputs) {
    const FlowRule* const rule = FlowOf(*node_);
    if (rule == nullptr) return Refuse("it has no flow rule");
    if (rule->of_whole) {
      for (size_t i = 0; i < node_->inputs.size(); ++i) {
        if (OfInput(i).partial.empty() && OfInput(i).split().empty()) continue;
        return Refuse(fmt::format("{} has to be whole, but is '{}'", Name(i), OfInput(i).ToString(RankOf(i))));
      }
      outputs->assign(node_->outputs.size(), Sharding());
      return OkStatus();
    }
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      if (const AxisSet over = OfInput(i).split() & rule->together; !over.empty()) {
        return Refuse(
            fmt::format("{} is split over {}, so it sees only a part of the whole", Name(i), over.ToString()));
      }
    }
    // The node's input for each operand of the rule; -1: absent.
    std::array<int, 16> input_of;
    int next = 0;
    for (size_t i = 0; i < rule->in.size(); ++i) {
      const char* const flag = rule->in[i].flag;
      const bool there =
          next < static_cast<int>(node_->inputs.size()) && (flag == nullptr || node_->attributes.Flag(flag));
      input_of[i] = there ? next++ : -1;
    }
    if (next != static_cast<int>(node_->inputs.size())) return Refuse("it has operands that its flow does not name");
    TEMPER_RETURN_IF_ERROR(Undeal(*rule, input_of));
    TEMPER_RETURN_IF_ERROR(CheckPart(*rule, input_of));
    for (const FlowOutput& out : rule->out) {
      if (out.flag != nullptr && !node_->attributes.Flag(out.flag)) continue;
      const int rank = graph_->value(node_->outputs[outputs->size()]).type.shape.rank();
      Sharding sharding;
      TEMPER_RETURN_IF_ERROR(Follow(*rule, out, input_of, rank, &sharding));
      outputs->push_back(std::move(sharding));
    }
    return OkStatus();
  }

  std::vector<Axis> PartAxes(const FlowRule& rule) const {
    const bool cut = rule.part_axes != nullptr && node_->attributes.Has(rule.part_axes);
    return cut ? InOrder(node_->attributes.String(rule.part_axes)) : std::vector<Axis>();
  }

  // Dealt rows are split over the part's axes behind those that split all rows. For ops that know of them `undealt_`
  // has the operands without those axes.
  Status Undeal(const FlowRule& rule, const std::array<int, 16>& input_of) {
    undealt_.clear();
    const std::vector<Axis> part = rule.dealt != 0 ? PartAxes(rule) : std::vector<Axis>();
    if (part.empty()) return OkStatus();
    for (const ValueId id : node_->inputs) undealt_.push_back(Of(id));
    for (size_t i = 0; i < rule.in.size(); ++i) {
      if (input_of[i] < 0) continue;
      const auto input = static_cast<size_t>(input_of[i]);
      for (int d = 0; d < RankOf(input); ++d) {
        if (LetterOf(rule.in[i].dims, RankOf(input), d) != rule.dealt) continue;
        auto& axes = undealt_[input].dims[static_cast<size_t>(d)];
        if (axes.size() >= part.size() && std::equal(part.rbegin(), part.rend(), axes.rbegin())) {
          axes.resize(axes.size() - part.size());
        } else if (rule.in[i].dealt) {
          return Refuse(fmt::format("{} has the rows of all ranks of '{}', where each should have its own", Name(input),
                                    Show(part)));
        }
      }
    }
    return OkStatus();
  }

  // Checks that the op's attributes describe its operands' sharding.
  Status CheckPart(const FlowRule& rule, const std::array<int, 16>& input_of) const {
    if (rule.part_axes == nullptr) return OkStatus();
    const AxisSet said = SetOf(PartAxes(rule));
    for (size_t i = 0; i < rule.in.size(); ++i) {
      if (input_of[i] < 0) continue;
      const auto input = static_cast<size_t>(input_of[i]);
      for (int d = 0; d < RankOf(input); ++d) {
        if (LetterOf(rule.in[i].dims, RankOf(input), d) != rule.part || OfOperand(input).split(d) == said) continue;
        return Refuse(fmt::format("{} is split over '{}', but the op assumes a split over '{}'", Name(input),
                                  OfInput(input).split(d).ToString(), said.ToString()));
      }
    }
    return OkStatus();
  }

  Status Follow(const FlowRule& rule, const FlowOutput& out, const std::array<int, 16>& input_of, int rank,
                Sharding* sharding) const {
    bool first = true;
    std::string_view first_from;
    std::array<bool, Shape::kMaxRank> known{};
    std::string_view letters = out.dims;
    if (static_cast<int>(letters.size()) > rank) letters.remove_prefix(letters.size() - static_cast<size_t>(rank));
    for (const uint16_t factors : out.products) {
      Product product;
      TEMPER_RETURN_IF_ERROR(Multiply(rule, factors, input_of, &product));
      if (product.absent) continue;
      AxisSet partial = product.partial;
      for (const Letter& letter : product.letters) {
        const bool in_output =
            letters.find(letter.name) != std::string_view::npos || (out.dealt && letter.name == rule.part);
        if (!in_output && !(out.exchanged && letter.name == rule.part)) partial |= SetOf(*letter.axes);
      }
      const bool has_part = out.dealt || (rule.part != 0 && letters.find(rule.part) != std::string_view::npos);
      if (product.dealt && !has_part) partial |= SetOf(PartAxes(rule));
      for (int d = 0; d < rank; ++d) {
        const char name = LetterOf(out.dims, rank, d);
        const Letter* const letter = product.Find(name);
        if (letter == nullptr && name != rule.part) continue;
        std::vector<Axis> axes = letter != nullptr ? *letter->axes : PartAxes(rule);
        if (out.like >= 0 && letter != nullptr) {
          const auto like = static_cast<size_t>(input_of[static_cast<size_t>(out.like)]);
          const auto& own = OfOperand(like).dims[static_cast<size_t>(d)];
          partial |= SetOf(axes) - SetOf(own);
          axes = own;
        }
        if (!(SetOf(axes) & partial).empty()) {
          return Refuse(fmt::format("{} is terms of a sum over {}, along which the result is split", product.from,
                                    partial.ToString()));
        }
        auto& slot = sharding->dims[static_cast<size_t>(d)];
        if (known[static_cast<size_t>(d)] && slot != axes) {
          return Refuse(fmt::format("it adds {}, whose dim {} is split over '{}', to {}, where that is '{}'",
                                    product.from, d, Show(axes), first_from, Show(slot)));
        }
        known[static_cast<size_t>(d)] = true;
        slot = std::move(axes);
      }
      if (!first && partial != sharding->partial) {
        const auto text = [](AxisSet sum) {
          return sum.empty() ? std::string("a whole value") : "terms of a sum over " + sum.ToString();
        };
        return Refuse(
            fmt::format("it adds {}, {}, to {}, {}", product.from, text(partial), first_from, text(sharding->partial)));
      }
      sharding->partial = partial;
      if (first) first_from = product.from;
      first = false;
    }
    for (int d = 0; d < rank && out.dealt; ++d) {
      if (LetterOf(out.dims, rank, d) != rule.dealt) continue;
      for (const Axis axis : PartAxes(rule)) sharding->dims[static_cast<size_t>(d)].push_back(axis);
    }
    return OkStatus();
  }

  Status Multiply(const FlowRule& rule, uint16_t factors, const std::array<int, 16>& input_of, Product* product) const {
    for (size_t i = 0; i < rule.in.size(); ++i) {
      if ((factors >> i & 1) == 0 || input_of[i] < 0) continue;
      const auto input = static_cast<size_t>(input_of[i]);
      const FlowOperand& operand = rule.in[i];
      const Sharding& p = OfOperand(input);
      if (!p.partial.empty() && !operand.linear) {
        return Refuse(fmt::format("{} is terms of a sum over {}, but is used as if it were the sum", Name(input),
                                  p.partial.ToString()));
      }
      if (const AxisSet both = product->partial & p.partial; !both.empty()) {
        return Refuse(fmt::format("it multiplies terms of two sums over {}: {} and {}", both.ToString(), product->from,
                                  Name(input)));
      }
      product->partial |= p.partial;
      product->absent = false;
      product->dealt |= operand.dealt;
      if (product->from.empty()) product->from = Name(input);
      const int rank = RankOf(input);
      for (int d = 0; d < rank; ++d) {
        const char name = LetterOf(operand.dims, rank, d);
        const auto& axes = p.dims[static_cast<size_t>(d)];
        if (std::islower(static_cast<unsigned char>(name)) != 0) {
          if (axes.empty()) continue;
          return Refuse(
              fmt::format("dim {} of {} has to be whole, but is split over '{}'", d, Name(input), Show(axes)));
        }
        const Letter* const known = product->Find(name);
        if (known == nullptr) {
          product->letters.push_back({name, &axes, Name(input)});
        } else if (*known->axes != axes && !(operand.shared && BeginsWith(*known->axes, axes))) {
          return Refuse(fmt::format("{} is split over '{}', which does not belong to the '{}' of {}", Name(input),
                                    Show(axes), Show(*known->axes), known->from));
        }
      }
    }
    AxisSet seen = product->partial;
    for (const Letter& letter : product->letters) {
      if (const AxisSet twice = seen & SetOf(*letter.axes); !twice.empty()) {
        return Refuse(fmt::format("{} is split over {}, which {} splits or adds up in another way", letter.from,
                                  twice.ToString(), product->from));
      }
      seen |= SetOf(*letter.axes);
    }
    return OkStatus();
  }

  // ---- collectives

  Status Collective(std::vector<Sharding>* outputs) const {
    const Attributes& a = node_->attributes;
    const auto parsed = AxisSet::Parse(a.String("axes"));
    if (!parsed.ok()) return Refuse(parsed.status().message());
    const AxisSet group = *parsed;
    if (a.Int("ranks") != mesh_.size(group)) {
      return Refuse(
          fmt::format("it is for {} ranks, but {} has {}", a.Int("ranks"), group.ToString(), mesh_.size(group)));
    }
    const size_t n = node_->outputs.size();
    for (size_t i = 0; i < n; ++i) {
      Sharding p = OfInput(i);
      if (node_->op == TrafficOp::kAllGather) {
        TEMPER_RETURN_IF_ERROR(Gather(i, group, &p));
      } else if (node_->op == TrafficOp::kShift) {
        // The parts move between ranks; compile/mesh/verify_ring.h checks whose part is where.
      } else if (node_->op == TrafficOp::kBroadcast) {
        if (!((p.partial | p.split()) & group).empty()) {
          return Refuse(fmt::format("{} is not the same along {}", Name(i), group.ToString()));
        }
      } else if (node_->op != TrafficOp::kReduceScatter && node_->op != TrafficOp::kAllReduce) {
        return Refuse("the sharding of its outputs is unknown");
      } else {
        if (!p.partial.HasAll(group)) {
          return Refuse(fmt::format("it adds up {} over {}, where it is no term of a sum{}", Name(i), group.ToString(),
                                    (p.split() & group).empty() ? ": it would be counted once per rank" : ""));
        }
        p.partial = p.partial - group;
        if (node_->op == TrafficOp::kReduceScatter) {
          auto& axes = p.dims[static_cast<size_t>(a.Int("dim"))];
          for (const Axis axis : group.axes()) axes.push_back(axis);
          if (a.Flag("acc") && !(OfInput(n + i) == p)) {
            return Refuse(fmt::format("it adds {}, which is split '{}', to a part split '{}'", Name(n + i),
                                      OfInput(n + i).ToString(RankOf(i)), p.ToString(RankOf(i))));
          }
        }
      }
      outputs->push_back(std::move(p));
    }
    return OkStatus();
  }

  // Parts are concatenated in the order of the group's ranks, which is the mesh's.
  Status Gather(size_t input, AxisSet group, Sharding* p) const {
    auto& axes = p->dims[static_cast<size_t>(node_->attributes.Int("dim"))];
    const std::vector<Axis> inner = group.axes();
    if (axes.size() < inner.size() || !std::equal(inner.rbegin(), inner.rend(), axes.rbegin())) {
      return Refuse(fmt::format("{} is split over '{}', of which '{}' are not the innermost parts", Name(input),
                                Show(axes), Show(inner)));
    }
    axes.resize(axes.size() - inner.size());
    return OkStatus();
  }

  const Mesh& mesh_;
  const std::map<std::string, Sharding>& weights_;
  // By name, which several stages may share: as the earlier graphs left them, and as this one does.
  std::map<std::string, Sharding> given_, gradients_;
  const Graph* graph_ = nullptr;
  const Node* node_ = nullptr;
  std::vector<std::optional<Sharding>> shardings_;  // per value
  std::vector<Sharding> undealt_;                   // per operand of the node; empty where none is dealt
};

}  // namespace

Status VerifyShardings(const Mesh& mesh, const std::map<std::string, Sharding>& weights,
                       std::span<const Graph* const> graphs) {
  Verifier verifier(mesh, weights);
  for (const Graph* graph : graphs) TEMPER_RETURN_IF_ERROR(verifier.Check(*graph));
  return OkStatus();
}

}  // namespace temper
