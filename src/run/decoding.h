// A model ready to decode, for `generate` and `chat`.
#pragma once

#include <memory>

#include "infer/generator.h"
#include "run/far_memory.h"
#include "run/model_options.h"

namespace temper {

struct DecodingModel {
  OpenedModel opened;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  ProcessorChoice choice;
  Processor processor;
  FarArenas far;
  std::unique_ptr<DecodeSession> session;
};

// Resolves the options' base_dtype.
Result<DecodingModel> OpenForDecoding(ModelOptions& options);
// Compiles the session and loads the weights that fit in memory; each step reads the others from their files.
// `wanted_context`: tokens of prompt and answer; the cache holds that many, limited by the model's positions.
Status StartSession(DecodingModel& model, const ModelOptions& options, int64_t wanted_context);

struct SamplingOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0, top_p = 1, min_p = 0, repetition_penalty = 1;
  int64_t top_k = 0, seed = 42;
  OptionGroup Group();
  SamplingSpec Spec() const;
};

// Feeds `prompt`, writes the answer to stdout token by token, ends the line, and returns the answer's tokens. Warns if
// the session's context is full before the answer ends. `stopped`, if given, is asked between steps whether to end the
// answer there.
Result<std::vector<int32_t>> StreamAnswer(DecodingModel& model, std::span<const int32_t> prompt,
                                          const SamplingOptions& sampling,
                                          const std::function<bool()>& stopped = nullptr);

}  // namespace temper
