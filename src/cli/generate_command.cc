// temper generate: continues a prompt. Only the continuation goes to stdout.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/print_answer.h"
#include "config/run_options.h"
#include "run/chat_context.h"
#include "run/decoding.h"
#include "run/machine.h"

namespace temper {
namespace {

constexpr char kGenerateUsage[] =
    "usage: temper generate MODEL --prompt TEXT [--option value ...]\n\n"
    "Continues the text; with --chat, answers it as a user's message. Prints the continuation on stdout.\n";

struct GenerateSettings {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt;
  bool chat = false;
  JsonObject kwargs;

  std::vector<OptionGroup> Groups() {
    std::vector<OptionGroup> groups = model.Groups();
    groups.push_back({"Prompt",
                      {{.name = "prompt", .target = &prompt, .help = "text to continue", .value_hint = "TEXT"},
                       {.name = "chat",
                        .target = &chat,
                        .help = "answer the prompt as a message, through the model's chat template"},
                       ChatTemplateKwargs(kwargs)}});
    groups.push_back(sampling.Group());
    return groups;
  }
};

// The prompt's tokens: as text, or as a conversation of one message.
Result<std::vector<int32_t>> EncodePrompt(const DecodingModel& model, const std::string& prompt, bool chat,
                                          const ChatOptions& options) {
  if (!chat) return model.tokenizer->Encode(prompt);
  if (!model.chat_template) {
    return InvalidArgument(model.opened.folder() + " has no chat template: choose one with --chat_template (" +
                           KnownTemplateNames() + ", or a file), or leave out --chat to continue raw text");
  }
  return EncodeChat(model, {{{"role", "user"}, {"content", prompt}}}, options);
}

Result<int> Generate(const Arguments& arguments) {
  GenerateSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kGenerateCommand));
  if (!line) return 0;
  auto& [options, sampling, prompt, chat, kwargs] = settings;
  TEMPER_RETURN_IF_ERROR(RequireModel(options.choice.model, kGenerateCommand));
  if (!line->Sets("prompt")) {
    return InvalidArgument(
        "there is no prompt: add --prompt TEXT (--prompt '' begins a text from nothing); temper chat asks for "
        "messages");
  }
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context, ChatContext::Create(Today(), kwargs));
  TEMPER_ASSIGN_OR_RETURN(DecodingModel model, OpenForDecoding(options));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodePrompt(model, prompt, chat, context.options()));
  TEMPER_RETURN_IF_ERROR(CheckPrompt(model, ids));
  TEMPER_RETURN_IF_ERROR(StartSession(model, options, static_cast<int64_t>(ids.size()) + sampling.max_new_tokens));
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
