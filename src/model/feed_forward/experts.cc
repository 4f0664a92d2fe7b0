#include "model/feed_forward/experts.h"

#include "graph/named_ops.h"

namespace temper {
namespace {

// From rows at their experts to their outputs, with biases: the rows of a table that the experts choose, which the
// product is added to. G pairs of gate and up: 2 F.
ValueId BuildClamped(ForwardBuilder& f, const ExpertsSpec& s, const BlockContext& block, ValueId x_PD,
                     ValueId expert_P) {
  const Dim D = block.hidden_dim(), E{DimLabel::kExperts, s.experts}, F{DimLabel::kFfn, s.ffn},
            G{DimLabel::kFfn, 2 * s.ffn};
  const std::string module = block.path + s.module;
  // Where ranks of tensor parallelism make terms of a sum, each looks up the biases of its own experts: terms, too.
  const Dim shared_E{DimLabel::kFfn, s.experts};
  const auto product = [&](ValueId x, const std::string& parameter, Dim in, Dim out, ForwardBuilder::Init init,
                           const char* name) {
    const ForwardBuilder::StackSegment all[] = {{"all", "", out}};
    const ValueId w = f.Stacks(
        {module, parameter, E, in, s.active, init, s.were_modules, ForwardBuilder::StackFiles::kInOut}, all)[0];
    const ValueId b_EO = f.Weight(module + "." + parameter + "_bias", {in.label == DimLabel::kFfn ? shared_E : E, out},
                                  ForwardBuilder::Init::kZero);
    const ValueId b_PO = f.Embedding(b_EO, expert_P, 0, std::string(name) + "_bias");
    return f.Add(Op::kGroupedLinear, {x, w, expert_P, b_PO}, {{"acc", int64_t{1}}, {"active", s.active}}, name)[0];
  };
  const ValueId pairs_PG = product(x_PD, s.gate_up, D, G, ForwardBuilder::Init::kNormal, "expert_gate_up");
  const ValueId h_PF = f.Add(Op::kGlu, {pairs_PG},
                             {{"clamped", int64_t{1}}, {"alpha", s.clamp_alpha}, {"limit", s.clamp}}, "expert_mlp")[0];
  return product(h_PF, s.down, F, D, block.fed_init, "expert_out");
}

}  // namespace

// T tokens, P rows of tokens at experts, D hidden, E experts, F ffn.
ValueId BuildExperts(ForwardBuilder& f, const ExpertsSpec& s, const BlockContext& block, ValueId x_TD) {
  const Dim D = block.hidden_dim(), E{DimLabel::kExperts, s.experts}, F{DimLabel::kFfn, s.ffn};
  const auto in_files = [&](const std::string& tensor) { return tensor.empty() ? tensor : block.path + tensor; };
  const std::string router = block.path + s.router;
  ForwardBuilder::LinearParameter routing{.name = router + ".weight", .in_files = in_files(s.router_tensor)};
  if (s.were_modules) routing.module_names = {"gate"};
  if (s.clamp > 0) routing.bias = router + ".bias";
  const ValueId logits_TE = f.LinearOf(x_TD, std::move(routing), E, D, "router");
  Attributes route = {{"active", s.active}};
  if (s.normalise) route.Set("normalise", int64_t{1});
  if (s.sigmoid) route.Set("sigmoid", int64_t{1});
  if (s.scale != 1) route.Set("scale", s.scale);
  if (s.groups > 0) {
    route.Set("groups", s.groups);
    route.Set("top_groups", s.top_groups);
  }
  std::vector<ValueId> scored = {logits_TE};
  if (!s.choice_bias.empty()) {
    route.Set("bias", int64_t{1});
    scored.push_back(f.Fixed(block.path + s.choice_bias, E, ForwardBuilder::Init::kZero));
  }
  const auto routed = f.Add(Op::kRoute, std::move(scored), std::move(route), "route");
  const ValueId place_TA = routed[1], expert_P = routed[2];
  f.CountExperts(logits_TE, routed, block.mixture, block.mixtures);
  const auto weighted = [&](ValueId y, const std::vector<ValueId>& by, const char* name) {
    return f.Add(Op::kCombine, {y, by[1], by[0]}, {{"weighted", int64_t{1}}, {"acc", int64_t{0}}}, name)[0];
  };

  const std::string module = block.path + s.module;
  const ForwardBuilder::StackSegment gate_up[] = {{"gate", s.gate_in_files.c_str(), F},
                                                  {"up", s.up_in_files.c_str(), F}};
  const ForwardBuilder::StackSegment down[] = {{"down", s.down_in_files.c_str(), D}};
  const auto product = [&](ValueId x, ValueId w_EOI, const char* name) {
    return f.Add(Op::kGroupedLinear, {x, w_EOI, expert_P}, {{"acc", int64_t{0}}, {"active", s.active}}, name)[0];
  };
  const ValueId x_PD = f.Add(Op::kGatherRows, {x_TD, place_TA}, {}, "rows")[0];
  if (s.clamp > 0) return weighted(BuildClamped(f, s, block, x_PD, expert_P), routed, "experts_out");
  const auto w_gate_up = f.Stacks({module, s.gate_up, E, D, s.active, ForwardBuilder::Init::kNormal, s.were_modules,
                                   s.files, in_files(s.gate_up_tensor)},
                                  gate_up);
  const ValueId gate = product(x_PD, w_gate_up[0], "expert_gate"), up = product(x_PD, w_gate_up[1], "expert_up");
  const ValueId h_PF = f.Glu(gate, up, "expert_mlp", GateOf(s.activation));
  const ValueId w_down = f.Stacks(
      {module, s.down, E, F, s.active, block.fed_init, s.were_modules, s.files, in_files(s.down_tensor)}, down)[0];
  const ValueId y_TD = weighted(product(h_PF, w_down, "expert_out"), routed, "experts_out");
  if (!s.shared) return y_TD;

  if (s.shared_gate.empty()) return f.Sum(y_TD, BuildMlp(f, *s.shared, block, x_TD), "experts_sum");
  // One expert, to which all tokens go.
  const ValueId logit_T1 = f.Linear(x_TD, block.path + s.shared_gate, {DimLabel::kNone, 1}, D, false, "shared_gate");
  const auto of_all = f.Add(Op::kRoute, {logit_T1}, {{"active", int64_t{1}}, {"sigmoid", int64_t{1}}}, "shared");
  const ValueId shared_TD = BuildMlp(f, *s.shared, block, x_TD);
  return f.Sum(y_TD, weighted(shared_TD, of_all, "shared_out"), "experts_sum");
}

}  // namespace temper
