// Attention and a layer of Mamba-2 beside each other: both read the block's input, and their outputs are added up
// (Falcon-H1, TII 2025; transformers, FalconH1DecoderLayer).
#pragma once

#include "model/block_context.h"
#include "model/mixers/attention.h"
#include "model/mixers/mamba2.h"

namespace temper {

struct AttentionBesideMamba2Spec {
  AttentionSpec attention;
  Mamba2Spec mamba;
  // Factors of what attention reads, and of both outputs.
  double attention_in_scale = 1, attention_out_scale = 1, mamba_out_scale = 1;

  friend bool operator==(const AttentionBesideMamba2Spec&, const AttentionBesideMamba2Spec&) = default;
};

// From the block's input, normed, to what joins the residual sum: [T, D] both.
ValueId BuildAttentionBesideMamba2(ForwardBuilder& f, const AttentionBesideMamba2Spec& spec, const BlockContext& block,
                                   ValueId x_TD);

}  // namespace temper
