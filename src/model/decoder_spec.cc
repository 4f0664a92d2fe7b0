#include "model/decoder_spec.h"

namespace temper {
namespace {

// The parts of kind T in all blocks.
template <class T, class Variant>
std::vector<T*> PartsOf(std::vector<DecoderBlock>& blocks, Variant DecoderBlock::*part) {
  std::vector<T*> parts;
  for (DecoderBlock& block : blocks) {
    if (T* const found = std::get_if<T>(&(block.*part)); found != nullptr) parts.push_back(found);
  }
  return parts;
}

}  // namespace

std::vector<AttentionSpec*> DecoderSpec::attentions() {
  return PartsOf<AttentionSpec>(blocks, &DecoderBlock::mixer);
}
std::vector<MlpSpec*> DecoderSpec::mlps() {
  return PartsOf<MlpSpec>(blocks, &DecoderBlock::feed_forward);
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
