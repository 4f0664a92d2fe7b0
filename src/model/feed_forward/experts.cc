#include "model/feed_forward/experts.h"

namespace temper {

// T tokens, P rows of tokens at experts, D hidden, E experts, F ffn.
ValueId BuildExperts(ForwardBuilder& f, const ExpertsSpec& s, const BlockContext& block, ValueId x_TD) {
  const Dim D = block.hidden_dim(), E{DimLabel::kExperts, s.experts}, F{DimLabel::kFfn, s.ffn};
  const ValueId logits_TE = f.LinearOf(x_TD, block.path + s.router + ".weight", E, D, "router",
                                       s.were_modules ? std::vector<std::string>{"gate"} : std::vector<std::string>());
  Attributes route = {{"active", s.active}};
  if (s.normalise) route.Set("normalise", int64_t{1});
  const auto routed = f.Add(Op::kRoute, {logits_TE}, std::move(route), "route");
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
  const auto w_gate_up =
      f.Stacks({module, s.gate_up, E, D, s.active, ForwardBuilder::Init::kNormal, s.were_modules}, gate_up);
  const ValueId gate = product(x_PD, w_gate_up[0], "expert_gate"), up = product(x_PD, w_gate_up[1], "expert_up");
  const ValueId h_PF = f.Glu(gate, up, "expert_mlp", GateOf(s.activation));
  const ValueId w_down = f.Stacks({module, s.down, E, F, s.active, block.added_init, s.were_modules}, down)[0];
  const ValueId y_TD = weighted(product(h_PF, w_down, "expert_out"), routed, "experts_out");
  if (!s.shared) return y_TD;

  // One expert, to which all tokens go.
  const ValueId logit_T1 = f.Linear(x_TD, block.path + s.shared_gate, {DimLabel::kNone, 1}, D, false, "shared_gate");
  const auto of_all = f.Add(Op::kRoute, {logit_T1}, {{"active", int64_t{1}}, {"sigmoid", int64_t{1}}}, "shared");
  const ValueId shared_TD = BuildMlp(f, *s.shared, block, x_TD);
  return f.Sum(y_TD, weighted(shared_TD, of_all, "shared_out"), "experts_sum");
}

}  // namespace temper
