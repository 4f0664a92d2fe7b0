#include "model/mixers/attention_beside_mamba2.h"

namespace temper {

ValueId BuildAttentionBesideMamba2(ForwardBuilder& f, const AttentionBesideMamba2Spec& s, const BlockContext& block,
                                   ValueId x_TD) {
  const ValueId mamba = f.Scale(BuildMamba2(f, s.mamba, block, x_TD), s.mamba_out_scale, "ssd_out_scaled");
  const ValueId read = f.Scale(x_TD, s.attention_in_scale, "attn_in");
  const ValueId attention =
      f.Scale(BuildAttention(f, s.attention, block, read), s.attention_out_scale, "attn_out_scaled");
  return f.Sum(mamba, attention, "mixed");
}

}  // namespace temper
