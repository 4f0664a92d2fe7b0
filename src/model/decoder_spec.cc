#include "model/decoder_spec.h"

namespace temper {

std::vector<AttentionSpec*> DecoderSpec::attentions() {
  std::vector<AttentionSpec*> parts;
  for (DecoderBlock& block : blocks) {
    if (auto* const attention = std::get_if<AttentionSpec>(&block.mixer); attention != nullptr) {
      parts.push_back(attention);
    } else if (auto* const both = std::get_if<AttentionBesideMamba2Spec>(&block.mixer); both != nullptr) {
      parts.push_back(&both->attention);
    }
  }
  return parts;
}
std::vector<MlpSpec*> DecoderSpec::mlps() {
  std::vector<MlpSpec*> parts;
  for (DecoderBlock& block : blocks) {
    if (auto* const mlp = std::get_if<MlpSpec>(&block.feed_forward); mlp != nullptr) parts.push_back(mlp);
  }
  return parts;
}

void DecoderSpec::SetNorm(NormSpec spec) {
  norm = spec;
  for (DecoderBlock& block : blocks) block.norms.spec = spec;
  for (AttentionSpec* const attention : attentions()) attention->norm = spec;
}
void DecoderSpec::NameNorms(const BlockNorms& names) {
  for (DecoderBlock& block : blocks) {
    const BlockNorms before = block.norms;
    block.norms = names;
    block.norms.spec = before.spec;
    block.norms.after_sums = before.after_sums;
  }
}

}  // namespace temper
