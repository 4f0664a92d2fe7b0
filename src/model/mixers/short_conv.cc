#include "model/mixers/short_conv.h"

namespace temper {

// T tokens, D hidden, C channels: as many as the model is wide. Ranks of tp share them as they share an MLP's width.
ValueId BuildShortConv(ForwardBuilder& f, const ShortConvSpec& s, const BlockContext& block, ValueId x_TD) {
  using enum GraphBuilder::Gate;
  const Dim D = block.hidden_dim(), C{DimLabel::kFfn, block.hidden};
  const std::string module = block.path + s.path;
  const auto bcx = f.FusedLinear(x_TD, module + s.in, {{"b", C}, {"c", C}, {"x", C}}, D, s.bias);
  ValueId h = f.Glu(bcx[0], bcx[2], "conv_in", kIdentity);
  h = f.ShortConv(h, module + s.conv, {.channels = C, .taps = s.taps, .bias = s.bias}, block.block, "conv");
  h = f.Glu(bcx[1], h, "conv_gated", kIdentity);
  return f.Linear(h, module + s.out, D, C, s.bias, "conv_out", {}, block.mixed_init);
}

}  // namespace temper
