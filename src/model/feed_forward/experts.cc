#include "model/feed_forward/experts.h"

namespace temper {

// T tokens, P rows of tokens at experts, D hidden, E experts, F ffn.
ValueId BuildExperts(ForwardBuilder& f, const ExpertsSpec& s, const BlockContext& block, ValueId x_TD) {
  const Dim D = block.hidden_dim(), E{DimLabel::kExperts, s.experts}, F{DimLabel::kFfn, s.ffn};
  const ValueId logits_TE = f.LinearOf(x_TD, block.path + s.router + ".weight", E, D, "router", {"gate"});
  Attributes route = {{"active", s.active}};
  if (s.normalise) route.Set("normalise", int64_t{1});
  const auto routed = f.Add(Op::kRoute, {logits_TE}, std::move(route), "route");
  const ValueId weight_TA = routed[0], place_TA = routed[1], expert_P = routed[2];

  const std::string module = block.path + s.module;
  const ForwardBuilder::StackSegment gate_up[] = {{"gate", s.gate_in_files.c_str(), F},
                                                  {"up", s.up_in_files.c_str(), F}};
  const ForwardBuilder::StackSegment down[] = {{"down", s.down_in_files.c_str(), D}};
  const auto product = [&](ValueId x, ValueId w_EOI, const char* name) {
    return f.Add(Op::kGroupedLinear, {x, w_EOI, expert_P}, {{"acc", int64_t{0}}, {"active", s.active}}, name)[0];
  };
  const ValueId x_PD = f.Add(Op::kGatherRows, {x_TD, place_TA}, {}, "rows")[0];
  const auto w_gate_up = f.Stacks(module, s.gate_up, gate_up, E, s.active, D, ForwardBuilder::Init::kNormal);
  const ValueId gate = product(x_PD, w_gate_up[0], "gate"), up = product(x_PD, w_gate_up[1], "up");
  const ValueId h_PF = f.Glu(gate, up, "mlp", GateOf(s.activation));
  const ValueId y_PD = product(h_PF, f.Stacks(module, s.down, down, E, s.active, F, block.added_init)[0], "expert_out");
  return f.Add(Op::kCombine, {y_PD, place_TA, weight_TA}, {{"weighted", int64_t{1}}, {"acc", int64_t{0}}},
               "mlp_out")[0];
}

}  // namespace temper
