// Generator: turns a prompt into more tokens with a DecodeSession: greedy, or sampled at a temperature. Draws come from
// a counter-based generator, so that equal seeds give equal text.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "infer/decode_session.h"

namespace temper {

struct SamplingSpec {
  double temperature = 0;  // 0: the most probable token
  int64_t top_k = 0;       // > 0: only the k most probable
  double top_p = 1;        // < 1: only the most probable that together reach p (nucleus)
  uint64_t seed = 42;
};

// The next token under `logits` [V]. `draw` numbers the draws of one seed. Ties go to the smaller id.
int32_t SampleToken(std::span<const float> logits, const SamplingSpec& spec, uint64_t draw);

// Feeds `prompt` (after the tokens that the decoder already holds) and produces up to `max_new_tokens`, stopping before
// the cache is full, after a token of `stop` (which is not delivered), or when `on_token` returns false. Returns the
// delivered tokens. The last of them has not been fed to the decoder. Errors: a prompt that is empty or longer than the
// rest of the cache, logits that are not numbers.
Result<std::vector<int32_t>> GenerateTokens(DecodeSession& decoder, std::span<const int32_t> prompt,
                                            int64_t max_new_tokens, const SamplingSpec& sampling,
                                            std::span<const int32_t> stop,
                                            const std::function<bool(int32_t)>& on_token);

}  // namespace temper
