#include "model/mixers/mamba2.h"

#include "graph/named_ops.h"

namespace temper {
namespace {

constexpr const char* kScaled[] = {"z_scaled", "x_scaled", "b_scaled", "c_scaled", "dt_scaled"};

ValueId Normed(ForwardBuilder& f, const Mamba2Spec& s, const std::string& module, ValueId y) {
  const Dim HP{DimLabel::kHeads, s.heads * s.value_dim};
  const ValueId scales = f.Weight(module + s.norm + ".weight", {HP}, ForwardBuilder::Init::kOne);
  Attributes attributes = {{"eps", s.norm_eps}};
  if (s.groups > 1) {
    attributes.Set("grouped", int64_t{1});
    attributes.Set("groups", s.groups);
  }
  return f.Add(Op::kRmsNorm, {y, scales}, std::move(attributes), "ssd_norm")[0];
}

}  // namespace

// T tokens, D hidden, H heads of P elements, G groups of N. All dims of heads have one label: ranks of tp take whole
// groups, and the heads of each; a norm over all heads, where there is one group, is refused there.
ValueId BuildMamba2(ForwardBuilder& f, const Mamba2Spec& s, const BlockContext& block, ValueId x_TD) {
  using Init = ForwardBuilder::Init;
  const Dim D = block.hidden_dim(), H{DimLabel::kHeads, s.heads};
  const Dim HP{DimLabel::kHeads, s.heads * s.value_dim}, GN{DimLabel::kHeads, s.groups * s.state_dim};
  const std::string module = block.path + s.path;
  // A product without bias is linear: what it reads need not be scaled.
  const double before = s.in_bias ? s.in_scale : 1, behind = s.in_bias ? 1 : s.in_scale;
  auto in = f.FusedLinear(f.Scale(x_TD, before, "ssd_in"), module + s.in,
                          {{"z", HP}, {"x", HP}, {"b", GN}, {"c", GN}, {"dt", H}}, D, s.in_bias);
  for (size_t i = 0; i < in.size(); ++i) in[i] = f.Scale(in[i], behind * s.scales[i], kScaled[i]);
  f.FusedShortConv(module + s.conv, {{"x", &in[1], HP}, {"b", &in[2], GN}, {"c", &in[3], GN}}, s.taps, s.conv_bias,
                   block.block);
  const ValueId a_log = f.Weight(module + s.a_log, {H}, Init::kLogUniform);
  const ValueId dt_bias = f.Weight(module + s.dt_bias, {H}, Init::kOne);
  const ValueId d = f.Weight(module + s.d, {H}, Init::kOneDecays);
  Attributes steps = {{"steps", int64_t{1}}};
  if (s.least_step > 0) steps.Set("min", s.least_step);
  const auto gates = f.Add(Op::kDecay, {in[4], a_log, dt_bias}, std::move(steps), "decay");
  ValueId y = f.Ssd({in[1], in[2], in[3], gates[0], gates[1], d}, {s.heads, s.groups}, block.block, "ssd");
  if (s.norms == Mamba2Spec::Norm::kBeforeGate) y = Normed(f, s, module, y);
  y = f.Glu(in[0], y, "ssd_gated");
  if (s.norms == Mamba2Spec::Norm::kAfterGate) y = Normed(f, s, module, y);
  return f.Linear(y, module + s.out, D, HP, s.out_bias, "ssd_out", {}, block.mixed_init);
}

}  // namespace temper
