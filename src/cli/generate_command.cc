// temper generate: continues a prompt, or answers many of a file. Only continuations go to stdout.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/print_answer.h"
#include "config/run_options.h"
#include "run/chat_context.h"
#include "run/decoding.h"
#include "run/machine.h"
#include "run/prompts.h"
#include "run/reading_of_run.h"

namespace temper {
namespace {

constexpr char kGenerateUsage[] =
    "usage: temper generate MODEL --prompt TEXT [--option value ...]\n"
    "       temper generate MODEL --prompts FILE [--batch N] [--option value ...]\n\n"
    "Continues the text; with --chat, answers it as a user's message. Prints the continuation on stdout; of a file of "
    "prompts, a line of JSON for each.\n";

struct GenerateSettings {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt, prompts;
  std::optional<int64_t> batch;
  bool chat = false;
  JsonObject kwargs;

  std::vector<OptionGroup> Groups() {
    std::vector<OptionGroup> groups = model.Groups();
    groups.push_back({"Prompt",
                      {{.name = "prompt", .target = &prompt, .help = "text to continue", .value_hint = "TEXT"},
                       {.name = "prompts",
                        .target = &prompts,
                        .help = "file of prompts: a line of text each (.txt), or rows as for training, whose answers "
                                "may be missing",
                        .value_hint = "FILE"},
                       {.name = "batch",
                        .target = &batch,
                        .help = "prompts of the file that are answered at a time; the answers do not depend on it",
                        .range = {.at_least = 1, .at_most = 256},
                        .default_text = "8; on GPUs 1"},
                       {.name = "chat",
                        .target = &chat,
                        .help = "answer the prompt as a message, through the model's chat template"},
                       ChatTemplateKwargs(kwargs)}});
    groups.push_back(sampling.Group());
    return groups;
  }
};

Status NoTemplate(const DecodingModel& model, const char* remedy) {
  return InvalidArgument(fmt::format("{} has no chat template: choose one with --chat_template ({}, or a file){}",
                                     model.opened.folder(), KnownTemplateNames(), remedy));
}

// The prompt's tokens: as text, or as a conversation of one message.
Result<std::vector<int32_t>> EncodePrompt(const DecodingModel& model, const std::string& prompt, bool chat,
                                          const ChatOptions& options) {
  if (!chat) return model.tokenizer->Encode(prompt);
  if (!model.chat_template) return NoTemplate(model, ", or leave out --chat to continue raw text");
  return EncodeChat(model, {{{"role", "user"}, {"content", prompt}}}, options);
}

constexpr int64_t kBatch = 8;

// A conversation goes through the template, a text only with --chat.
Result<std::vector<int32_t>> EncodeRow(const DecodingModel& model, const Prompt& prompt, bool chat,
                                       ChatOptions options) {
  const OrderedJson& messages = chat && prompt.messages.is_null() ? prompt.turns : prompt.messages;
  if (messages.is_null()) return EncodePrompt(model, prompt.text, chat, options);
  if (!model.chat_template) return NoTemplate(model, "");
  if (!prompt.variables.is_null()) options.variables = &prompt.variables;
  return EncodeChat(model, messages, options, prompt.tools);
}

// Prints rows in the order of the file, each as soon as those before it are there; after an error those that are.
Status AnswerAll(DecodingModel& model, const std::vector<Prompt>& prompts, const GenerateSettings& settings,
                 const ChatContext& context, int64_t at_a_time) {
  std::vector<std::vector<int32_t>> ids;
  size_t longest = 0;
  for (const Prompt& prompt : prompts) {
    auto encoded = EncodeRow(model, prompt, settings.chat, context.options());
    if (!encoded.ok()) return encoded.status().WithContext(prompt.where);
    for (const Status& checked : {CheckPrompt(model, *encoded), CheckTokens(model, *encoded)}) {
      if (!checked.ok()) return checked.WithContext(prompt.where);
    }
    longest = std::max(longest, encoded->size());
    ids.push_back(std::move(*encoded));
  }
  TEMPER_RETURN_IF_ERROR(
      StartEngine(model, settings.model,
                  static_cast<int64_t>(longest) + std::min(settings.sampling.max_new_tokens, kMaxRows), at_a_time));
  if (model.sequence != nullptr) model.engine->Close(std::exchange(model.sequence, nullptr));
  std::vector<std::optional<std::string>> rows(prompts.size());
  size_t printed = 0;
  const auto on_answer = [&](size_t i, std::vector<int32_t> tokens) {
    const Answer answer{.tokens = std::move(tokens)};
    const std::string cut_off = CutOffOf(model, static_cast<int64_t>(ids[i].size()),
                                         static_cast<int64_t>(answer.tokens.size()), settings.sampling);
    if (!cut_off.empty()) LogWarning(prompts[i].where + ": " + cut_off);
    const bool chat = settings.chat || !prompts[i].messages.is_null();
    rows[i] = AnsweredRow(prompts[i], chat ? TurnOf(model, answer) : model.tokenizer->Decode(answer.tokens));
    for (; printed < rows.size() && rows[printed]; rows[printed++].reset()) {
      std::fputs((*rows[printed] + "\n").c_str(), stdout);
    }
    std::fflush(stdout);
  };
  const Status generated = GenerateAll(*model.engine, ids, settings.sampling.max_new_tokens, settings.sampling.Spec(),
                                       model.tokenizer->stop_ids(), on_answer);
  // After an error, the answers that waited for one before them.
  for (const std::optional<std::string>& row : rows) {
    if (row) std::fputs((*row + "\n").c_str(), stdout);
  }
  return generated;
}

Result<int> Generate(const Arguments& arguments) {
  GenerateSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kGenerateCommand));
  if (!line) return 0;
  auto& [options, sampling, prompt, prompts, batch, chat, kwargs] = settings;
  TEMPER_RETURN_IF_ERROR(RequireModel(options.choice.model, kGenerateCommand));
  if (line->Sets("prompt") && !prompts.empty()) return InvalidArgument("--prompt and --prompts: leave one out");
  if (batch && prompts.empty()) return InvalidArgument("--batch is for the prompts of a file: add --prompts FILE");
  if (!line->Sets("prompt") && prompts.empty()) {
    return InvalidArgument(
        "there is no prompt: add --prompt TEXT (--prompt '' begins a text from nothing); temper chat asks for "
        "messages");
  }
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context, ChatContext::Create(Today(), kwargs));
  std::vector<Prompt> rows;
  if (!prompts.empty()) {
    const ModelChoice& choice = options.choice;
    const RowReading reading =
        ReadingAsTrained(PosixEnv(), choice.adapter.empty() ? choice.model : choice.adapter, {}, {}, RowUse::kAnswers);
    TEMPER_ASSIGN_OR_RETURN(rows, ReadPrompts(PosixEnv(), prompts, reading));
  }
  TEMPER_ASSIGN_OR_RETURN(DecodingModel model, OpenForDecoding(options));
  if (sampling.TakeFrom(model.generation)) LogInfo(sampling.Describe());
  if (!prompts.empty()) {
    const bool on_gpu = model.choice.on_gpu();
    if (on_gpu && batch.value_or(1) > 1) {
      return Unsupported("--batch: GPUs answer one prompt at a time; leave it out, or add --device cpu");
    }
    const auto most = static_cast<int64_t>(rows.size());
    const int64_t at_a_time = std::min(batch.value_or(on_gpu ? 1 : kBatch), most);
    TEMPER_RETURN_IF_ERROR(AnswerAll(model, rows, settings, context, at_a_time));
    return 0;
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodePrompt(model, prompt, chat, context.options()));
  TEMPER_RETURN_IF_ERROR(CheckPrompt(model, ids));
  TEMPER_RETURN_IF_ERROR(
      StartEngine(model, options, static_cast<int64_t>(ids.size()) + std::min(sampling.max_new_tokens, kMaxRows)));
  TEMPER_RETURN_IF_ERROR(PrintAnswer(model, ids, sampling).status());
  return 0;
}

}  // namespace

const Command kGenerateCommand = {.name = "generate",
                                  .summary = "continue a prompt",
                                  .usage = kGenerateUsage,
                                  .first_word = FirstWord::kModel,
                                  .words = "",
                                  .run = Generate,
                                  .read_options = ReadOptionsOf<GenerateSettings>};

}  // namespace temper
