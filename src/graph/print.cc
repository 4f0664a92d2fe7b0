// Text form of a Graph, one line per value, then one per node, then one per root:
//   value %3 "model.norm.weight" f32[64] weight trainable
//   value %9 "grad:x" f32[64] gradient updates=%7
//   value %4 "lm_head.weight" f32[16, 64] weight trainable shard of=[32, 64] at=[16, 0] split=fsdp partial=dp
//   value %5 "model.norm.weight" f32[64] weight tier=host
//   value %6 "model.layers.0.self_attn.k_proj.weight" f32[32, 64] weight dims=kv_heads,hidden
//   value %7 "embed_positions.weight" f32[32, 64] weight trainable never_decays
//   node rms_norm forward block=0 (%1, %3) -> (%4, %5) {eps=1e-05}
//   value %8 "lm_head.weight" f32[32, 64] weight trainable group=1
//   value %8 "target" i32[64] input per_token
//   node dropout backward block=1 (%6, %2) -> (%8) {p=0.1} rng="model.layers.1.q_proj.dropout"
//   root %12
//   root %14 seed=%3
#include <fmt/core.h>

#include "graph/graph.h"
#include "graph/line_reader.h"

namespace temper {
namespace {

std::string Ids(const std::vector<ValueId>& ids) {
  std::string text = "(";
  for (size_t i = 0; i < ids.size(); ++i) text += fmt::format("{}%{}", i ? ", " : "", ids[i]);
  return text + ")";
}

bool ReadLabels(LineReader& in, DimLabels* labels) {
  std::string_view word;
  if (!in.Word(&word)) return false;
  const std::optional<DimLabels> read = DimLabels::Parse(word);
  if (read) *labels = *read;
  return read.has_value();
}

bool ReadValue(LineReader& in, Graph* graph) {
  Value value;
  ValueId id;
  std::string_view role;
  if (!in.Eat("%") || !in.Number(&id) || id != graph->num_values() || !in.Eat(" ") || !in.Quoted(&value.name) ||
      !in.Eat(" ") || !in.Type(&value.type) || !in.Eat(" ") || !in.Word(&role) || !ParseRole(role)) {
    return false;
  }
  value.role = *ParseRole(role);
  value.trainable = in.Eat(" trainable");
  value.decays = in.Eat(" decays") || (!in.Eat(" never_decays") && DecaysByDefault(value.role, value.type.shape));
  if (in.Eat(" group=") && !in.Number(&value.update_group)) return false;
  value.per_token = in.Eat(" per_token");
  if (in.Eat(" tier=") && !in.ReadTier(&value.tier)) return false;
  if (in.Eat(" dims=") && !ReadLabels(in, &value.labels)) return false;
  if (in.Eat(" updates=%") && !in.Number(&value.updates)) return false;
  if (in.Eat(" shard") && !in.ReadShard(&value.shard.emplace())) return false;
  graph->AddValue(std::move(value));
  return in.AtEnd();
}

bool ReadNode(LineReader& in, Graph* graph) {
  Node node;
  std::string_view op, phase;
  if (!in.Word(&op) || !ParseOp(op) || !in.Eat(" ") || !in.Word(&phase) || !ParsePhase(phase) || !in.Eat(" block=") ||
      !in.Number(&node.block) || !in.Eat(" ") || !in.IdList(&node.inputs) || !in.Eat(" -> ") ||
      !in.IdList(&node.outputs) || !in.Eat(" ") || !in.Braced(&node.attributes)) {
    return false;
  }
  node.op = *ParseOp(op);
  node.phase = *ParsePhase(phase);
  if (in.Eat(" rng=") && !in.Quoted(&node.rng_name)) return false;
  graph->AddNode(std::move(node));
  return in.AtEnd();
}

bool ReadRoot(LineReader& in, Graph* graph) {
  LossRoot root;
  if (!in.Eat("%") || !in.Number(&root.loss) || (in.Eat(" seed=%") && !in.Number(&root.seed))) return false;
  graph->roots().push_back(root);
  return in.AtEnd();
}

}  // namespace

std::string PrintGraph(const Graph& graph) {
  std::string text;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& v = graph.value(id);
    text += fmt::format("value %{} \"{}\" {} {}", id, v.name, v.type.ToString(), ToString(v.role));
    if (v.trainable) text += " trainable";
    if (v.decays != DecaysByDefault(v.role, v.type.shape)) text += v.decays ? " decays" : " never_decays";
    if (v.update_group != 0) text += fmt::format(" group={}", v.update_group);
    if (v.per_token) text += " per_token";
    if (v.tier != Tier::kDevice) text += fmt::format(" tier={}", ToString(v.tier));
    if (!v.labels.empty()) text += fmt::format(" dims={}", v.labels.ToString());
    if (v.updates != kNoValue) text += fmt::format(" updates=%{}", v.updates);
    if (v.shard) text += " shard" + v.shard->ToString();
    text += '\n';
  }
  for (const Node& n : graph.nodes()) {
    text += fmt::format("node {} {} block={} {} -> {} {}", ToString(n.op), ToString(n.phase), n.block, Ids(n.inputs),
                        Ids(n.outputs), n.attributes.ToString());
    if (!n.rng_name.empty()) text += fmt::format(" rng=\"{}\"", n.rng_name);
    text += '\n';
  }
  for (const LossRoot& root : graph.roots()) {
    text += fmt::format("root %{}", root.loss);
    if (root.seed != kNoValue) text += fmt::format(" seed=%{}", root.seed);
    text += '\n';
  }
  return text;
}

Result<Graph> ReadGraph(std::string_view text) {
  Graph graph;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t n = std::min(text.find('\n'), text.size());
    LineReader in(text.substr(0, n));
    text.remove_prefix(std::min(n + 1, text.size()));
    const bool good = in.Eat("value ")  ? ReadValue(in, &graph)
                      : in.Eat("root ") ? ReadRoot(in, &graph)
                                        : in.Eat("node ") && ReadNode(in, &graph);
    if (!good) return Corrupt(fmt::format("graph text line {}: not a value, node or root", line_number));
  }
  TEMPER_RETURN_IF_ERROR(Verify(graph));
  return graph;
}

}  // namespace temper
