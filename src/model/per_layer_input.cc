#include "model/per_layer_input.h"

#include <fmt/core.h>

#include <cmath>

#include "graph/named_ops.h"

namespace temper {
namespace {

std::string NameOf(int64_t block) {
  return fmt::format("per_layer_input.{}", block);
}

}  // namespace

// T tokens, D hidden, L blocks, P width, V vocabulary.
void PublishPerLayerInputs(ForwardBuilder& f, const PerLayerSpec& s, const std::string& prefix, int64_t blocks,
                           Dim hidden, ValueId embedded_TD, SharedValues* shared) {
  const Dim V{DimLabel::kVocab, s.vocab}, LP{DimLabel::kNone, blocks * s.width}, P{DimLabel::kNorm, s.width};
  const ValueId table = f.Weight(prefix + "embed_tokens_per_layer.weight", {V, LP});
  ValueId of_token = f.Embedding(table, f.token(), 0, "per_layer_embedded");
  of_token = f.ScaleAsWeight(of_token, std::sqrt(static_cast<double>(s.width)), "per_layer_scaled");
  ValueId of_context =
      f.Linear(embedded_TD, prefix + "per_layer_model_projection", LP, hidden, false, "per_layer_projected");
  of_context = f.Scale(of_context, 1 / std::sqrt(static_cast<double>(hidden.size)), "per_layer_projected_scaled");
  of_context = BuildNorm(f, s.norm, of_context, prefix + "per_layer_projection_norm", P, "per_layer_normed",
                         /*grouped=*/true);
  const ValueId all = f.Scale(f.Sum(of_context, of_token, "per_layer_sum"), std::sqrt(0.5), "per_layer_inputs");
  // Cut here, so that blocks stay alike.
  for (int64_t b = 0; b < blocks; ++b) {
    shared->Publish(NameOf(b),
                    f.Add(Op::kSliceColumns, {all}, {{"begin", b * s.width}, {"count", s.width}}, NameOf(b)));
  }
}

ValueId BuildPerLayerInput(ForwardBuilder& f, const PerLayerSpec& s, const BlockContext& block, ValueId x_TD) {
  const Dim D = block.hidden_dim(), P{DimLabel::kNone, s.width};
  ValueId h = f.Linear(x_TD, block.path + "per_layer_input_gate", P, D, false, "per_layer_gate");
  h = f.Glu(h, block.shared->Take(NameOf(block.block))[0], "per_layer_gated", GateOf(s.activation));
  h = f.Linear(h, block.path + "per_layer_projection", D, P, false, "per_layer_out");
  return BuildNorm(f, s.norm, h, block.path + "post_per_layer_input_norm", {DimLabel::kNorm, block.hidden},
                   "per_layer_out_norm");
}

}  // namespace temper
