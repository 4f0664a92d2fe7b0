// A model ready to decode: for `generate` and `chat`, and for programs that open one (api/temper.h).
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/generation_config.h"
#include "infer/generator.h"
#include "run/far_memory.h"
#include "run/model_options.h"

namespace temper {

struct DecodingModel {
  OpenedModel opened;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  GenerationDefaults generation;
  ProcessorChoice choice;
  Processor processor;
  FarArenas far;
  std::unique_ptr<DecodeEngine> engine;
  DecodeSequence* sequence = nullptr;  // of an engine for one
};

// Resolves the options' base_dtype.
Result<DecodingModel> OpenForDecoding(ModelOptions& options);
// Compiles the engine and loads the weights that fit in memory; each step reads the others from their files.
// `wanted_context`: tokens of prompt and answer; the cache holds that many of each of `sequences`, limited by the
// model's positions. Says what the cache of several takes before it reads a weight.
Status StartEngine(DecodingModel& model, const ModelOptions& options, int64_t wanted_context, int64_t sequences = 1);

// How answers are sampled. What is not given is as the model's generation_config.json says.
struct SamplingOptions {
  int64_t max_new_tokens = 128;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  int64_t seed = 42;

  OptionGroup Group();
  // Takes what is not given from the model. True: it has answers sampled, though nobody gave a temperature.
  bool TakeFrom(const GenerationDefaults& of_model);
  // How answers are sampled then, for people.
  std::string Describe() const;
  SamplingSpec Spec() const;  // what nobody gave: the most probable token
};

// The tokens of a conversation up to the model's next answer. REQUIRES: the model has a chat template.
Result<std::vector<int32_t>> EncodeChat(const DecodingModel& model, const OrderedJson& messages,
                                        const ChatOptions& options, const OrderedJson& tools = nullptr);
// Errors: no token; too many for the model's positions.
Status CheckPrompt(const DecodingModel& model, std::span<const int32_t> prompt);

// Error: a token that the model has no embedding for.
Status CheckTokens(const DecodingModel& model, std::span<const int32_t> prompt);

struct Answer {
  std::vector<int32_t> tokens;
  std::string cut_off;  // a warning, if the context was full before the answer ended
};

// The warning for an answer of `length` tokens that ended because the context was full; "": it did not.
std::string CutOffOf(const DecodingModel& model, int64_t prompt, int64_t length, const SamplingOptions& sampling);

// Feeds `prompt` and gives the answer to `on_text` as it comes, whole characters at a time. `stopped`, if given, is
// asked between steps whether to end the answer there. REQUIRES: the engine is for one sequence.
Result<Answer> StreamAnswer(DecodingModel& model, std::span<const int32_t> prompt, const SamplingOptions& sampling,
                            const std::function<void(const std::string& text)>& on_text,
                            const std::function<bool()>& stopped = nullptr);

// An answer as a message's content, without the end of its turn. REQUIRES: the model has a chat template.
std::string TurnOf(const DecodingModel& model, const Answer& answer);

}  // namespace temper
