#include "run/decoding.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/utf8.h"
#include "compile/run/compiled_run.h"
#include "data/tokenizer/stream_decoder.h"
#include "format/quoted.h"
#include "run/machine.h"

namespace temper {

Result<DecodingModel> OpenForDecoding(ModelOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(ProcessorChoice choice, ChooseProcessor(options.device));
  TEMPER_ASSIGN_OR_RETURN(OpenedModel opened, OpenedModel::Open(PosixEnv(), options.choice));
  TEMPER_RETURN_IF_ERROR(options.ResolveBase(opened));
  TEMPER_RETURN_IF_ERROR(opened.OpenWeights());
  DecodingModel model{.opened = std::move(opened), .choice = std::move(choice)};
  TEMPER_ASSIGN_OR_RETURN(model.tokenizer, model.opened.LoadTokenizer());
  TEMPER_ASSIGN_OR_RETURN(model.chat_template, model.opened.LoadChatTemplate(model.tokenizer.get()));
  TEMPER_ASSIGN_OR_RETURN(model.processor, Processor::Open(model.choice, options.ResolvedThreads()));
  return model;
}

Status StartSession(DecodingModel& model, const ModelOptions& options, int64_t wanted_context) {
  const int64_t positions = model.opened.model().facts().max_positions;
  DecodeSpec spec{.dtype = options.ResolvedDType(model.choice),
                  .context = std::min(wanted_context, positions),
                  .base = options.Base(model.choice),
                  .threads = model.choice.on_gpu() ? 1 : options.ResolvedThreads(),
                  .joins_adapters = !model.choice.on_gpu()};
  TEMPER_ASSIGN_OR_RETURN(spec.adapter, model.opened.AdapterTargets());
  spec.memory = MemorySpecOf(options.run);
  TEMPER_ASSIGN_OR_RETURN(const ProcessMemory available, MemoryFor(model.processor));
  TEMPER_ASSIGN_OR_RETURN(ProgramSet programs, CompileDecoding(model.opened.model(), spec, &available));
  TEMPER_ASSIGN_OR_RETURN(model.far, ReserveFar(programs.first(), options.run.memory.disk, model.opened,
                                                model.processor.device(), options.ResolvedThreads()));
  TEMPER_ASSIGN_OR_RETURN(model.session,
                          DecodeSession::Create(std::move(programs), spec.context, model.processor.kernels(),
                                                model.processor.device(), model.far.tiers()));
  return model.opened.Load([&](const std::string& name) {
    return model.far.mapped.contains(name) ? DevicePart() : model.session->Buffer(name);
  });
}

OptionGroup SamplingOptions::Group() {
  return {"Sampling",
          {{.name = "max_new_tokens",
            .target = &max_new_tokens,
            .help = "maximum number of tokens to generate",
            .range = {.at_least = 1}},
           {.name = "temperature",
            .target = &temperature,
            .help = "0 takes the most probable token; higher is more varied",
            .range = {.at_least = 0}},
           {.name = "top_k",
            .target = &top_k,
            .help = "sample only from the k most probable tokens; 0: all",
            .range = {.at_least = 0}},
           {.name = "top_p",
            .target = &top_p,
            .help = "sample from the most probable tokens whose probabilities add up to p",
            .range = {.at_most = 1, .above = 0}},
           {.name = "min_p",
            .target = &min_p,
            .help = "sample only from tokens at least this many times as probable as the most probable; 0: all",
            .range = {.at_least = 0, .at_most = 1}},
           {.name = "repetition_penalty",
            .target = &repetition_penalty,
            .help = "above 1: tokens of the prompt and the answer become less probable, also at temperature 0",
            .range = {.above = 0}},
           {.name = "seed", .target = &seed, .help = "equal seeds give equal text"}}};
}

SamplingSpec SamplingOptions::Spec() const {
  return {.repetition_penalty = repetition_penalty,
          .temperature = temperature,
          .top_k = top_k,
          .top_p = top_p,
          .min_p = min_p,
          .seed = static_cast<uint64_t>(seed)};
}

Result<std::vector<int32_t>> StreamAnswer(DecodingModel& model, std::span<const int32_t> prompt,
                                          const SamplingOptions& sampling, const std::function<bool()>& stopped) {
  const int64_t vocab = model.opened.model().facts().vocab;
  const auto beyond = std::find_if(prompt.begin(), prompt.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  if (beyond != prompt.end()) {
    return InvalidArgument(
        fmt::format("the prompt has the token {} ({}), but the model has embeddings for only {}: leave it out", *beyond,
                    Quoted(model.tokenizer->IdToToken(*beyond)), vocab));
  }
  StreamDecoder decoder(*model.tokenizer);
  // Escape sequences that a model has learnt could rewrite a terminal's screen, its clipboard, or what is typed next.
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const auto print = [&](const std::string& text) {
    const std::string shown = terminal ? utf8::Harmless(text) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  };
  const auto on_token = [&](int32_t id) {
    print(decoder.Push(id));
    return !stopped || !stopped();
  };
  TEMPER_ASSIGN_OR_RETURN(std::vector<int32_t> answer,
                          GenerateTokens(*model.session, prompt, sampling.max_new_tokens, sampling.Spec(),
                                         model.tokenizer->stop_ids(), on_token, stopped));
  print(decoder.Finish() + "\n");
  // The last token needs no position: none follows it.
  const int64_t used = static_cast<int64_t>(prompt.size() + answer.size()), context = model.session->context();
  if (used > context && static_cast<int64_t>(answer.size()) < sampling.max_new_tokens) {
    LogWarning(
        fmt::format("the answer is cut off after {} tokens: with the prompt's {} it fills the {} positions of "
                    "the {}",
                    answer.size(), prompt.size(), context,
                    context == model.opened.model().facts().max_positions ? "model" : "conversation"));
  }
  return answer;
}

}  // namespace temper
