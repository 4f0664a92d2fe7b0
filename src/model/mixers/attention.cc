#include "model/mixers/attention.h"

#include "graph/named_ops.h"

namespace temper {

// T tokens, D hidden, H heads, K kv-heads, E head dim, R rotary elements of a head.
ValueId BuildAttention(ForwardBuilder& f, const AttentionSpec& s, const BlockContext& block, ValueId x_TD) {
  const std::string sink = s.sink.empty() ? "" : block.path + s.path + s.sink;
  const ForwardBuilder::Heads heads{.heads = s.heads,
                                    .kv_heads = s.kv_heads,
                                    .head_dim = s.head_dim,
                                    .window = s.window,
                                    .scale = s.scale,
                                    .softcap = s.score_cap,
                                    .sink = sink,
                                    .sinks_begin_at_zero = s.sinks_begin_at_zero,
                                    .slopes = s.slopes,
                                    .rounded_slopes = s.rounded_slopes};
  const Dim D = block.hidden_dim();
  const Dim HE{DimLabel::kHeads, s.heads * s.head_dim}, KE{DimLabel::kKvHeads, s.kv_heads * s.head_dim};
  const std::string module = block.path + s.path;
  const bool takes = !s.takes.empty();
  ValueId q, k = kNoValue, v = kNoValue, gate = kNoValue;
  if (s.qvk_parts > 0) {
    const auto qvk =
        f.FusedLinear(x_TD, module + s.qkv, {{"q", HE}, {"v", KE}, {"k", KE}}, D, s.qkv_bias, {.groups = s.qvk_parts});
    q = qvk[0], v = qvk[1], k = qvk[2];
  } else if (s.fused_qkv) {
    const ModuleLayout fused{.groups = s.qkv_by_kv_head ? s.kv_heads : 1, .transposed = block.transposed};
    const auto qkv = f.FusedLinear(x_TD, module + s.qkv, {{"q", HE}, {"k", KE}, {"v", KE}}, D, s.qkv_bias, fused);
    q = qkv[0], k = qkv[1], v = qkv[2];
  } else {
    if (s.gated) {
      const auto both =
          f.FusedLinear(x_TD, module + s.q, {{"q", HE}, {"gate", HE}}, D, s.qkv_bias, {.groups = s.heads});
      q = both[0], gate = both[1];
    } else {
      q = f.Linear(x_TD, module + s.q, HE, D, s.qkv_bias, "q");
    }
    if (!takes) k = f.Linear(x_TD, module + s.k, KE, D, s.qkv_bias, "k");
    if (!takes) v = s.v_is_k ? k : f.Linear(x_TD, module + s.v, KE, D, s.qkv_bias, "v");
  }
  const auto clipped = [&](ValueId x, const char* name) {
    if (s.clip == 0 || x == kNoValue) return x;
    return f.Add(Op::kClamp, {x}, {{"limit", s.clip}}, name)[0];
  };
  const auto clip_all = [&] {
    const bool v_is_k = v == k;
    q = clipped(q, "q_clipped");
    k = clipped(k, "k_clipped");
    v = v_is_k ? k : clipped(v, "v_clipped");
  };
  if (!s.clips_after_norms) clip_all();
  const auto normed = [&](ValueId x, Dim all, const std::string& norm, const std::string& name) {
    if (s.qk_norm == AttentionSpec::QkNorm::kNone) return x;
    const Dim head{DimLabel::kNorm, s.head_dim};
    if (s.qk_norm == AttentionSpec::QkNorm::kEachHead) {
      return BuildNormOfEach(f, s.norm.eps, x, module + norm, s.head_norms, {all.label, all.size / s.head_dim}, head,
                             name);
    }
    const bool by_head = s.qk_norm == AttentionSpec::QkNorm::kHeads;
    return BuildNorm(f, s.norm, x, module + norm, by_head ? head : all, name, by_head);
  };
  const auto norm_both = [&] {
    q = normed(q, HE, s.q_norm, "q_norm");
    if (!takes) k = normed(k, KE, s.k_norm, "k_norm");
  };
  if (!s.norms_after_rope) norm_both();
  if (s.clips_after_norms) clip_all();
  if (s.rope != kNoRope) {
    const RopeTables& rope = block.ropes[static_cast<size_t>(s.rope)];
    q = f.Rope(q, rope.q, s.head_dim, rope.interleaved, "q_rope");
    if (!takes) k = f.Rope(k, rope.k, s.head_dim, rope.interleaved, "k_rope");
  }
  if (s.norms_after_rope) norm_both();
  if (!takes && s.norms_v) {
    v = BuildNorm(f, {NormKind::kRmsPlain, s.norm.eps}, v, "", {DimLabel::kNorm, s.head_dim}, "v_norm",
                  /*grouped=*/true);
  }
  ForwardBuilder::KeysValues kv{k, v};
  if (takes) {
    const std::vector<ValueId>& taken = block.shared->Take(s.takes);
    kv = {taken[0], taken[1], taken[2], taken[3]};
  }
  ValueId o = f.Attend(q, &kv, heads, block.block, "attn");
  if (!s.publishes.empty()) block.shared->Publish(s.publishes, {kv.k, kv.v, kv.k_cache, kv.v_cache});
  if (s.gated) o = f.Glu(gate, o, "attn_gated", GraphBuilder::Gate::kSigmoid);
  if (!s.head_gate.empty()) {
    const ValueId gate_TH = f.Linear(x_TD, module + s.head_gate, {DimLabel::kHeads, s.heads}, D, false, "head_gate");
    o = f.Add(Op::kGateHeads, {o, gate_TH}, {}, "attn_gated")[0];
  }
  return f.Linear(o, module + s.out, D, HE, s.out_bias, "attn_out", {.transposed = block.transposed}, block.mixed_init);
}

}  // namespace temper
