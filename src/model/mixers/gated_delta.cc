#include "model/mixers/gated_delta.h"

#include "graph/named_ops.h"

namespace temper {

// T tokens, D hidden, K key heads, V value heads. All dims of heads have one label: ranks of tp take whole key heads,
// and the value heads that belong to each.
ValueId BuildGatedDelta(ForwardBuilder& f, const GatedDeltaSpec& s, const BlockContext& block, ValueId x_TD) {
  using Init = ForwardBuilder::Init;
  const Dim D = block.hidden_dim(), V{DimLabel::kHeads, s.value_heads};
  const Dim KE{DimLabel::kHeads, s.key_heads * s.key_dim}, VF{DimLabel::kHeads, s.value_heads * s.value_dim};
  const std::string module = block.path + s.path;
  std::vector<ValueId> qkv;
  ValueId z, b, a;
  if (s.qkvz.empty()) {
    qkv = f.FusedLinear(x_TD, module + s.qkv, {{"q", KE}, {"k", KE}, {"v", VF}}, D, /*bias=*/false);
    z = f.Linear(x_TD, module + s.z, VF, D, /*bias=*/false, "z");
    b = f.Linear(x_TD, module + s.b, V, D, /*bias=*/false, "b");
    a = f.Linear(x_TD, module + s.a, V, D, /*bias=*/false, "a");
  } else {
    const ModuleLayout by_head = {.groups = s.key_heads};
    qkv = f.FusedLinear(x_TD, module + s.qkvz, {{"q", KE}, {"k", KE}, {"v", VF}, {"z", VF}}, D, false, by_head);
    const auto ba = f.FusedLinear(x_TD, module + s.ba, {{"b", V}, {"a", V}}, D, false, by_head);
    z = qkv[3], b = ba[0], a = ba[1];
  }
  f.FusedShortConv(module + s.conv, {{"q", &qkv[0], KE}, {"k", &qkv[1], KE}, {"v", &qkv[2], VF}}, s.taps,
                   /*bias=*/false, block.block);
  const ValueId a_log = f.Weight(module + s.a_log, {V}, Init::kLogUniform);
  const ValueId dt_bias = f.Weight(module + s.dt_bias, {V}, Init::kOne);
  const ValueId g = f.Add(Op::kDecay, {a, a_log, dt_bias}, {}, "decay")[0];
  ValueId o = f.GatedDelta(qkv[0], qkv[1], qkv[2], g, b, {s.key_heads, s.value_heads}, block.block, "delta");
  const NormSpec norm{NormKind::kRms, s.norm_eps};
  o = BuildNorm(f, norm, o, module + s.norm, {DimLabel::kNorm, s.value_dim}, "delta_norm", /*grouped=*/true);
  o = f.Glu(z, o, "delta_gated");
  return f.Linear(o, module + s.out, D, VF, /*bias=*/false, "delta_out", {}, block.mixed_init);
}

}  // namespace temper
