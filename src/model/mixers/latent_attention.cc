#include "model/mixers/latent_attention.h"

#include "graph/named_ops.h"

namespace temper {

// T tokens, D hidden, H heads of E elements, of which R turn; V those of a value; L latents.
ValueId BuildLatentAttention(ForwardBuilder& f, const LatentAttentionSpec& s, const BlockContext& block, ValueId x_TD) {
  const int64_t E = s.head_dim + s.rope_dim;
  const Dim D = block.hidden_dim(), HE{DimLabel::kHeads, s.heads * E}, HV{DimLabel::kHeads, s.heads * s.v_head_dim};
  const Dim own_keys{DimLabel::kKvHeads, s.heads * s.head_dim}, values{DimLabel::kKvHeads, s.heads * s.v_head_dim};
  const Dim L{DimLabel::kNone, s.kv_rank}, R{DimLabel::kNone, s.rope_dim};
  const std::string module = block.path + s.path;
  const RopeTables& rope = block.ropes[static_cast<size_t>(s.rope)];
  const auto normed = [&](ValueId x, const std::string& norm, int64_t width, const char* name) {
    return BuildNorm(f, s.norm, x, module + norm, {DimLabel::kNorm, width}, name);
  };

  ValueId q;
  if (s.q_rank == 0) {
    q = f.Linear(x_TD, module + s.q, HE, D, false, "q");
  } else {
    const Dim of_q{DimLabel::kNone, s.q_rank};
    const ValueId latents = f.Linear(x_TD, module + s.q_a, of_q, D, s.bias, "q_latents");
    q = f.Linear(normed(latents, s.q_norm, s.q_rank, "q_latents_norm"), module + s.q_b, HE, of_q, false, "q");
  }
  q = f.Rope(q, rope.q, E, rope.interleaved, "q_rope", /*first=*/s.head_dim);

  const auto made = f.FusedLinear(x_TD, module + s.kv_a, {{"latents", L}, {"rope", R}}, D, s.bias);
  const ValueId latents = normed(made[0], s.kv_norm, s.kv_rank, "latents_norm");
  const ValueId k_rope = f.Rope(made[1], rope.k, s.rope_dim, rope.interleaved, "k_rope");
  const auto own =
      f.FusedLinear(latents, module + s.kv_b, {{"k", own_keys}, {"v", values}}, L, false, {.groups = s.heads});
  const ValueId k = f.Add(Op::kAppendToHeads, {own[0], k_rope}, {{"heads", s.heads}}, "k_heads")[0];

  ForwardBuilder::KeysValues kv{k, own[1]};
  const ForwardBuilder::Heads heads{
      .heads = s.heads, .kv_heads = s.heads, .head_dim = E, .scale = s.scale, .v_head_dim = s.v_head_dim};
  const ValueId o = f.Attend(q, &kv, heads, block.block, "attn");
  return f.Linear(o, module + s.out, D, HV, s.bias, "attn_out", {}, block.mixed_init);
}

}  // namespace temper
