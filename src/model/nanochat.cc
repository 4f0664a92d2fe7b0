// nanochat (Karpathy 2025; transformers, NanoChatForCausalLM): norms without weights, also of what the first block
// reads and, behind the rotary embedding, of each head's q and k; an MLP without gate, whose activation is the square
// of ReLU; capped logits. The rotary embedding turns the other way.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadNanoChat(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "NanoChatForCausalLM",
                                                     {.vocab = 50304,
                                                      .hidden = 768,
                                                      .ffn = 8192,
                                                      .blocks = 12,
                                                      .heads = 6,
                                                      .max_positions = 2048,
                                                      .activation = "relu2",
                                                      .gated = false},
                                                     where));
  s.SetNorm(NormKind::kRmsPlain);
  s.names.embedding_norm = "embedding_norm";  // without a weight
  s.init_by_depth = DecoderSpec::InitByDepth::kMixers;
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.fc1";
    m->down = "mlp.fc2";
  }
  RopeSpec& rope = s.ropes[0];
  if (rope.dynamic_factor != 0) return Unsupported(where + ": dynamic rope scaling is not supported here");
  for (std::vector<double>* frequencies : {&rope.inv_freq, &rope.long_inv_freq}) {
    for (double& f : *frequencies) f = -f;
  }
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->norms_after_rope = true;
    a->qkv_bias = a->out_bias = bias;
  }
  if (const auto cap = config.find("final_logit_softcapping"); cap == config.end() || !cap->is_null()) {
    TEMPER_ASSIGN_OR_RETURN(s.logit_cap, NumberOr(config, "final_logit_softcapping", 15, where));
    if (!(s.logit_cap > 0)) {
      return Corrupt(fmt::format("{}: final_logit_softcapping is {}, should be positive or null", where, s.logit_cap));
    }
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
