#include "run/decoding.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "compile/run/compiled_run.h"
#include "data/tokenizer/stream_decoder.h"
#include "format/quoted.h"
#include "graph/ops/attention_cache.h"
#include "run/machine.h"

namespace temper {

Result<DecodingModel> OpenForDecoding(ModelOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(ProcessorChoice choice, ChooseProcessor(options.device));
  TEMPER_ASSIGN_OR_RETURN(OpenedModel opened, OpenedModel::Open(PosixEnv(), options.choice));
  if (opened.class_head()) {
    return InvalidArgument(
        fmt::format("{} judges texts and writes none ({}): use temper score, or give a model of language",
                    options.choice.model, opened.model().facts().architecture));
  }
  TEMPER_RETURN_IF_ERROR(options.ResolveBase(opened));
  TEMPER_RETURN_IF_ERROR(opened.OpenWeights());
  DecodingModel model{.opened = std::move(opened), .choice = std::move(choice)};
  TEMPER_ASSIGN_OR_RETURN(model.tokenizer, model.opened.LoadTokenizer());
  TEMPER_ASSIGN_OR_RETURN(model.chat_template, model.opened.LoadChatTemplate(model.tokenizer.get()));
  TEMPER_ASSIGN_OR_RETURN(model.generation, ReadGenerationDefaults(PosixEnv(), model.opened.folder()));
  TEMPER_ASSIGN_OR_RETURN(model.processor, Processor::Open(model.choice, options.ResolvedThreads()));
  return model;
}

Status StartEngine(DecodingModel& model, const ModelOptions& options, int64_t wanted_context, int64_t sequences) {
  const int64_t positions = model.opened.model().facts().max_positions;
  DecodeSpec spec{.dtype = options.ResolvedDType(model.choice),
                  .context = std::min(wanted_context, positions),
                  .sequences = sequences,
                  .base = options.Base(model.opened.model().facts(), model.choice),
                  .threads = model.choice.on_gpu() ? 1 : options.ResolvedThreads(),
                  .joins_adapters = !model.choice.on_gpu()};
  TEMPER_ASSIGN_OR_RETURN(TrainableSet adapter, model.opened.AdapterSet());
  spec.adapter = std::move(adapter.adapters);
  spec.copies = std::move(adapter.copies);
  spec.rows = std::move(adapter.rows);
  spec.memory = MemorySpecOf(options.run);
  TEMPER_ASSIGN_OR_RETURN(const ProcessMemory available, MemoryFor(model.processor));
  TEMPER_ASSIGN_OR_RETURN(ProgramSet programs, CompileDecoding(model.opened.model(), spec, &available));
  if (sequences > 1) {
    LogInfo(fmt::format("cache: {} for {} sequences of {} tokens, in pages of {}", ToString(CacheBytesOf(programs)),
                        sequences, spec.context, kCachePage));
  }
  TEMPER_ASSIGN_OR_RETURN(model.far, ReserveFar(programs.first(), options.run.memory.disk, model.opened,
                                                model.processor.device(), options.ResolvedThreads()));
  TEMPER_ASSIGN_OR_RETURN(model.engine,
                          DecodeEngine::Create(std::move(programs), spec.context, model.processor.kernels(),
                                               model.processor.device(), model.far.tiers()));
  if (sequences == 1) model.sequence = model.engine->Open();
  const BufferLookup buffer = [&](const std::string& name) {
    return model.far.mapped.contains(name) ? DevicePart() : model.engine->Buffer(name);
  };
  TEMPER_RETURN_IF_ERROR(model.opened.Load(buffer));
  TEMPER_RETURN_IF_ERROR(model.opened.LoadRowsBeside(spec.rows, buffer));
  return model.opened.LoadRowNormsOf(spec.adapter, NormsOf::kSum, /*magnitudes=*/false, buffer);
}

namespace {

constexpr char kOfModel[] = "as generation_config.json says";

}  // namespace

OptionGroup SamplingOptions::Group() {
  return {"Sampling",
          {{.name = "max_new_tokens",
            .target = &max_new_tokens,
            .help = "maximum number of tokens to generate",
            .range = {.at_least = 1}},
           {.name = "temperature",
            .target = &temperature,
            .help = "0 takes the most probable token; higher is more varied",
            .range = {.at_least = 0},
            .default_text = kOfModel},
           {.name = "top_k",
            .target = &top_k,
            .help = "sample only from the k most probable tokens; 0: all",
            .range = {.at_least = 0},
            .default_text = kOfModel},
           {.name = "top_p",
            .target = &top_p,
            .help = "sample from the most probable tokens whose probabilities add up to p",
            .range = {.at_most = 1, .above = 0},
            .default_text = kOfModel},
           {.name = "min_p",
            .target = &min_p,
            .help = "sample only from tokens at least this many times as probable as the most probable; 0: all",
            .range = {.at_least = 0, .at_most = 1},
            .default_text = kOfModel},
           {.name = "repetition_penalty",
            .target = &repetition_penalty,
            .help = "above 1: tokens of the prompt and the answer become less probable, also at temperature 0",
            .range = {.above = 0},
            .default_text = kOfModel},
           {.name = "seed", .target = &seed, .help = "equal seeds give equal text"}}};
}

bool SamplingOptions::TakeFrom(const GenerationDefaults& of_model) {
  if (!repetition_penalty) repetition_penalty = of_model.repetition_penalty;
  if (!top_k) top_k = of_model.top_k;
  if (!top_p) top_p = of_model.top_p;
  if (!min_p) min_p = of_model.min_p;
  if (temperature || !of_model.samples) return false;
  temperature = of_model.temperature;
  return true;
}

std::string SamplingOptions::Describe() const {
  std::string text = fmt::format("sampling: temperature {}", temperature.value_or(0));
  if (top_k) text += fmt::format(", top_k {}", *top_k);
  for (const auto& [name, value] :
       {std::pair("top_p", top_p), {"min_p", min_p}, {"repetition_penalty", repetition_penalty}}) {
    if (value) text += fmt::format(", {} {}", name, *value);
  }
  return fmt::format("{}, as {} says (--temperature 0: always the same answer)", text, kGenerationConfigFile);
}

SamplingSpec SamplingOptions::Spec() const {
  const SamplingSpec plain;
  return {.repetition_penalty = repetition_penalty.value_or(plain.repetition_penalty),
          .temperature = temperature.value_or(plain.temperature),
          .top_k = top_k.value_or(plain.top_k),
          .top_p = top_p.value_or(plain.top_p),
          .min_p = min_p.value_or(plain.min_p),
          .seed = static_cast<uint64_t>(seed)};
}

Result<std::vector<int32_t>> EncodeChat(const DecodingModel& model, const OrderedJson& messages,
                                        const ChatOptions& options, const OrderedJson& tools) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text,
                          model.chat_template->Render(messages, tools, /*add_generation_prompt=*/true, options));
  return model.tokenizer->Encode(text, {.add_special = false});
}

Status CheckPrompt(const DecodingModel& model, std::span<const int32_t> prompt) {
  if (prompt.empty()) {
    return InvalidArgument("--prompt is empty and this tokenizer adds no token before a text: write a prompt");
  }
  const int64_t positions = model.opened.model().facts().max_positions;
  if (static_cast<int64_t>(prompt.size()) < positions) return OkStatus();
  return InvalidArgument(
      fmt::format("the prompt has {} tokens, but the model has {} positions for prompt and answer: "
                  "shorten it",
                  prompt.size(), positions));
}

Status CheckTokens(const DecodingModel& model, std::span<const int32_t> prompt) {
  const int64_t vocab = model.opened.model().facts().vocab;
  const auto beyond = std::find_if(prompt.begin(), prompt.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  if (beyond == prompt.end()) return OkStatus();
  return InvalidArgument(
      fmt::format("the prompt has the token {} ({}), but the model has embeddings for only {}: leave it out", *beyond,
                  Quoted(model.tokenizer->IdToToken(*beyond)), vocab));
}

std::string CutOffOf(const DecodingModel& model, int64_t prompt, int64_t length, const SamplingOptions& sampling) {
  // The last token needs no position: none follows it.
  const int64_t used = prompt + length, context = model.engine->context();
  if (used <= context || length >= sampling.max_new_tokens) return "";
  return fmt::format(
      "the answer is cut off after {} tokens: with the prompt's {} it fills the {} positions of "
      "the {}",
      length, prompt, context, context == model.opened.model().facts().max_positions ? "model" : "conversation");
}

Result<Answer> StreamAnswer(DecodingModel& model, std::span<const int32_t> prompt, const SamplingOptions& sampling,
                            const std::function<void(const std::string&)>& on_text,
                            const std::function<bool()>& stopped) {
  TEMPER_RETURN_IF_ERROR(CheckTokens(model, prompt));
  StreamDecoder decoder(*model.tokenizer);
  const auto give = [&](const std::string& text) {
    if (!text.empty()) on_text(text);
  };
  const auto on_token = [&](int32_t id) {
    give(decoder.Push(id));
    return !stopped || !stopped();
  };
  Answer answer;
  TEMPER_ASSIGN_OR_RETURN(answer.tokens,
                          GenerateTokens(*model.sequence, prompt, sampling.max_new_tokens, sampling.Spec(),
                                         model.tokenizer->stop_ids(), on_token, stopped));
  give(decoder.Finish());
  answer.cut_off =
      CutOffOf(model, static_cast<int64_t>(prompt.size()), static_cast<int64_t>(answer.tokens.size()), sampling);
  return answer;
}

std::string TurnOf(const DecodingModel& model, const Answer& answer) {
  std::string text = model.tokenizer->Decode(answer.tokens), end = model.chat_template->TurnEnd();
  end.erase(end.find_last_not_of(" \t\r\n") + 1);
  // A turn's end that is text, not a token, is the template's to print.
  if (!end.empty() && text.ends_with(end)) text.resize(text.size() - end.size());
  return text;
}

}  // namespace temper
