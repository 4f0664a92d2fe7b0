// Generator: turns prompts into more tokens with a DecodeEngine: greedy, or sampled at a temperature. Draws come from
// a counter-based generator, so that equal seeds give equal text.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "infer/decode_engine.h"

namespace temper {

// Meaning and order as in transformers: the penalty, the temperature, then the cuts, each on what the one before left.
struct SamplingSpec {
  double repetition_penalty = 1;  // > 1: tokens of the prompt and of the answer become less probable
  double temperature = 0;         // 0: the most probable token
  int64_t top_k = 0;              // > 0: only the k most probable, and those as probable as the last of them
  double top_p = 1;               // < 1: only the most probable that together reach p (nucleus)
  double min_p = 0;               // > 0: only those at least min_p times as probable as the most probable
  uint64_t seed = 42;
};

// The next token under `logits` [V], without the penalty. `draw` numbers the draws of one seed and stream. Ties go to
// the smaller id.
int32_t SampleToken(std::span<const float> logits, const SamplingSpec& spec, uint64_t draw, uint64_t stream = 0);

// Makes each token of `seen` less probable, once however often it occurs: divides a positive logit by `penalty`,
// multiplies a negative one. REQUIRES: ids are below logits.size().
void PenalizeRepetition(std::span<float> logits, std::span<const int32_t> seen, double penalty);

// Continues `prompt` by up to `max_new_tokens`, stopping before the cache is full, after a token of `stop` (which is
// not delivered), or when `on_token` returns false. Returns the delivered tokens. The last of them has not been fed to
// the decoder. What the decoder already holds of the prompt's beginning is not fed again: the sums are the same, but
// kernels may take them in another order. The repetition penalty counts `prompt` and what was produced. `stopped`, if
// given, is called between the steps of the prompt, which may take long; true ends the call. Errors: a prompt that is
// empty or longer than the cache, logits that are not numbers.
Result<std::vector<int32_t>> GenerateTokens(DecodeSequence& decoder, std::span<const int32_t> prompt,
                                            int64_t max_new_tokens, const SamplingSpec& sampling,
                                            std::span<const int32_t> stop, const std::function<bool(int32_t)>& on_token,
                                            const std::function<bool()>& stopped = nullptr);

// Continues `prompts`, each as GenerateTokens does, as many at a time as `engine` has sequences: where one has ended,
// the next takes its place. Prompt i draws from stream i of the seed, so that its answer depends neither on the others
// nor on how many there are at a time. `on_answer` gets the tokens of each as it ends. REQUIRES: max_new_tokens > 0;
// no sequence is open.
Status GenerateAll(DecodeEngine& engine, std::span<const std::vector<int32_t>> prompts, int64_t max_new_tokens,
                   const SamplingSpec& sampling, std::span<const int32_t> stop,
                   const std::function<void(size_t prompt, std::vector<int32_t> tokens)>& on_answer);

}  // namespace temper
