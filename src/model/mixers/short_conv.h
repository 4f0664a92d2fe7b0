// A gated short convolution (Liquid AI 2025; transformers, Lfm2ShortConv): b, c and x are one product of the input;
// out(c * conv(b * x)), where conv is causal, by channel.
#pragma once

#include <cstdint>
#include <string>

#include "model/block_context.h"

namespace temper {

struct ShortConvSpec {
  int64_t taps = 0;
  bool bias = false;  // of the products and of the convolution

  // Modules: `path` in the block, the others in `path`.
  std::string path = "conv.";
  std::string in = "in_proj", conv = "conv", out = "out_proj";

  friend bool operator==(const ShortConvSpec&, const ShortConvSpec&) = default;
};

// From the block's input, normed, to what joins the residual sum: [T, D] both.
ValueId BuildShortConv(ForwardBuilder& f, const ShortConvSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
