#include "plan/sharding_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace temper {
namespace {

// Tensors that are drawn together.
struct Family {
  std::string name;  // with * for the numbers of the blocks
  TensorType type;
  Sharding sharding;
  DimLabels labels;
  std::optional<size_t> rule;  // the deciding user's rule; else labels decided
  std::vector<int> stages;     // for a pipeline
  bool trainable = false;
  int64_t count = 0;
  int first_block = kBlockBefore, last_block = kBlockBefore;
};

// "block.3.weight" of block 3 -> "block.*.weight".
std::string WithoutBlock(std::string name, int block) {
  const std::string number = fmt::format(".{}.", block);
  const size_t at = name.find(number);
  return at == name.npos ? name : name.replace(at, number.size(), ".*.");
}

std::vector<Family> FamiliesOf(const Graph& forward, const ShardedWeights& sharded,
                               const std::map<std::string, std::vector<int>>& stages) {
  std::vector<Family> families;
  const std::vector<int> blocks = BlocksOfFirstUse(forward);
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& v = forward.value(id);
    if (v.role != Role::kWeight && v.role != Role::kAdapter) continue;
    const Sharding& p = sharded.shardings.at(v.name);
    const auto by = sharded.rule_of.find(v.name);
    const auto rule = by == sharded.rule_of.end() ? std::nullopt : std::optional<size_t>(by->second);
    const int block = blocks[static_cast<size_t>(id)];
    const std::string name = WithoutBlock(v.name, block);
    const auto at = stages.find(v.name);
    const std::vector<int> of_stages = at == stages.end() ? std::vector<int>{0} : at->second;
    auto it = std::find_if(families.begin(), families.end(), [&](const Family& f) {
      return f.name == name && f.type == v.type && f.labels == v.labels && f.rule == rule &&
             f.trainable == v.trainable && f.stages == of_stages;
    });
    if (it == families.end()) {
      it = families.insert(families.end(), {name, v.type, p, v.labels, rule, of_stages, v.trainable, 0, block, block});
    }
    ++it->count;
    it->last_block = block;
  }
  return families;
}

// "0-3,6": ascending ranks.
std::string Ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (j > i) text += fmt::format("{}{}", j == i + 1 ? "," : "-", ranks[j]);
    i = j + 1;
  }
  return text;
}

std::string Painted(const std::string& text, int rank, const ShardingStyle& style) {
  // 36 colours of the 6x6x6 cube, neither dark nor pale.
  return style.colours ? fmt::format("\x1b[48;5;{};38;5;16m{}\x1b[0m", 75 + rank * 29 % 144, text) : text;
}

bool Holds(const Family& f, const Mesh& mesh, int rank) {
  return std::count(f.stages.begin(), f.stages.end(), mesh.Coordinate(rank, Axis::kPp)) > 0;
}

std::string RanksOfStages(const Family& f, const Mesh& mesh) {
  if (mesh.size(Axis::kPp) == 1) return "on every rank";
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (Holds(f, mesh, rank)) ranks.push_back(rank);
  }
  return fmt::format("on {} {}", ranks.size() == 1 ? "rank" : "ranks", Ranks(ranks));
}

// The tensor as a map of cells, each with the ranks that hold it.
std::string DrawTensor(const Family& f, const Mesh& mesh, const ShardingStyle& style) {
  const TensorType& type = f.type;
  const Sharding& sharding = f.sharding;
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> holders;  // by the slice's first row and column
  std::map<int64_t, int64_t> row_ends, column_ends;
  const bool matrix = type.shape.rank() >= 2;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (!Holds(f, mesh, rank)) continue;
    const Box box = BoxOf(type.shape, sharding, mesh, rank);
    if (box.shape.elements() == 0) continue;
    const int64_t row = box.begin[0], column = matrix ? box.begin[1] : 0;
    holders[{row, column}].push_back(rank);
    row_ends[row] = row + box.shape[0];
    column_ends[column] = matrix ? column + box.shape[1] : 1;
  }
  size_t width = 6;
  for (const auto& [slice, ranks] : holders) width = std::max(width, Ranks(ranks).size() + 2);
  const auto line = [&](const char* left, const char* middle, const char* right) {
    std::string dash, text = "    ";
    for (size_t i = 0; i < width; ++i) dash += style.boxes ? "─" : "-";
    size_t k = 0;
    while (k < column_ends.size()) text += (k++ == 0 ? left : middle) + dash;
    return text + right + "\n";
  };
  std::string text;
  const char* const bar = style.boxes ? "│" : "|";
  text += style.boxes ? line("┌", "┬", "┐") : line("+", "+", "+");
  size_t row_number = 0;
  for (const auto& [row, row_end] : row_ends) {
    if (row_number++ > 0) text += style.boxes ? line("├", "┼", "┤") : line("+", "+", "+");
    text += "    ";
    for (const auto& [column, column_end] : column_ends) {
      const auto& ranks = holders[{row, column}];
      text += bar + Painted(fmt::format("{:^{}}", Ranks(ranks), width), ranks.empty() ? 0 : ranks[0], style);
    }
    text += fmt::format("{}  rows {}-{}\n", bar, row, row_end - 1);
  }
  text += style.boxes ? line("└", "┴", "┘") : line("+", "+", "+");
  if (column_ends.size() > 1) {
    text += "    columns";
    for (const auto& [begin, end] : column_ends) text += fmt::format(" {}-{}", begin, end - 1);
    text += '\n';
  }
  return text;
}

std::string Tensors(int64_t count) {
  return count == 0 ? "nothing" : fmt::format("{} tensor{}", count, count == 1 ? "" : "s");
}

// The user's rules in order, then the labels that decided the rest, each with the number of tensors it decided.
std::string DescribeRules(const Graph& forward, const ShardedBy& by, const ShardedWeights& sharded) {
  std::vector<int64_t> decided(by.rules.size(), 0);
  for (const auto& [name, rule] : sharded.rule_of) ++decided[rule];
  struct Row {
    std::string what, spec;
    int64_t count;
  };
  std::vector<Row> rules, labels;
  for (size_t r = 0; r < by.rules.size(); ++r) {
    rules.push_back({fmt::format("{:>2}  {}", r + 1, by.rules[r].pattern), by.rules[r].spec, decided[r]});
  }
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& v = forward.value(id);
    if ((v.role != Role::kWeight && v.role != Role::kAdapter) || sharded.rule_of.contains(v.name)) continue;
    const std::optional<std::string> spec = SpecOfLabels(v.labels, by.residual, v.type.dtype.quantised());
    if (!spec) continue;  // of one element
    const std::string text = v.labels.ToString();
    const auto it = std::find_if(labels.begin(), labels.end(), [&](const Row& row) { return row.what == text; });
    if (it == labels.end()) {
      labels.push_back({text, *spec, 1});
    } else {
      ++it->count;
    }
  }
  size_t width = 0;
  for (const auto* rows : {&rules, &labels}) {
    for (const Row& row : *rows) width = std::max(width, row.what.size());
  }
  std::string text;
  const auto print = [&](const char* title, const std::vector<Row>& rows) {
    if (rows.empty()) return;
    text += title;
    for (const Row& row : rows) {
      text += fmt::format("  {:<{}}  {:<12}  decides {}\n", row.what, width, row.spec, Tensors(row.count));
    }
  };
  print("your sharding rules: the first whose pattern is found in a tensor's name decides\n", rules);
  print(rules.empty() ? "by the labels of their dims\n" : "the rest by the labels of their dims\n", labels);
  return text;
}

}  // namespace

std::string DrawSharding(const Graph& forward, const ShardedBy& by, const ShardedWeights& sharded,
                         const std::map<std::string, std::vector<int>>& stages, const ShardingStyle& style) {
  const Mesh& mesh = by.mesh;
  std::string text = fmt::format("mesh {}: {} ranks\n", mesh.ToString(), mesh.ranks());
  text += DescribeRules(forward, by, sharded);
  std::vector<Bytes> held(static_cast<size_t>(mesh.ranks()));
  Bytes whole;
  for (const Family& f : FamiliesOf(forward, sharded, stages)) {
    const int rank = f.type.shape.rank();
    const std::string decided = f.rule             ? fmt::format("  by rule {}", *f.rule + 1)
                                : f.labels.empty() ? ""
                                                   : fmt::format("  by {}", f.labels.ToString());
    text += fmt::format("\n{}{}  {}  {}{}{}\n", f.name,
                        f.count > 1 ? fmt::format("  (layers {}-{})", f.first_block, f.last_block) : "",
                        f.type.ToString(), f.sharding.ToString(rank), decided, f.trainable ? "  trained" : "");
    text += f.sharding.split().empty() ? fmt::format("    {}\n", RanksOfStages(f, mesh)) : DrawTensor(f, mesh, style);
    whole += f.type.bytes() * f.count;
    for (int r = 0; r < mesh.ranks(); ++r) {
      if (!Holds(f, mesh, r)) continue;
      const TensorType part{f.type.dtype, BoxOf(f.type.shape, f.sharding, mesh, r).shape};
      held[static_cast<size_t>(r)] += part.bytes() * f.count;
    }
  }
  text += fmt::format("\nweights and adapters: {} in all\n", ToString(whole));
  for (int r = 0; r < mesh.ranks(); ++r) {
    text += fmt::format("  {}  {}\n", Painted(fmt::format(" rank {:<4}", r), r, style),
                        ToString(held[static_cast<size_t>(r)]));
  }
  return text;
}

}  // namespace temper
