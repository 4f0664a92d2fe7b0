// temper chat: a conversation at the terminal. Prompts go to stderr, the model's answers to stdout.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "config/run_options.h"
#include "run/chat_context.h"
#include "run/decoding.h"
#include "run/machine.h"

namespace temper {
namespace {

constexpr char kUsage[] =
    "usage: temper chat --model FOLDER [--system TEXT] [--option value ...]\n\n"
    "Talks to a model. One line is one message; an empty line or Ctrl-D ends, /new forgets the conversation.\n";

constexpr int64_t kContext = 4096;  // tokens of conversation kept, if the model has so many positions

// Tokens of the whole conversation up to the model's next answer.
Result<std::vector<int32_t>> EncodeConversation(const DecodingModel& model, const OrderedJson& messages,
                                                const ChatOptions& chat) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text,
                          model.chat_template->Render(messages, nullptr, /*add_generation_prompt=*/true, chat));
  return model.tokenizer->Encode(text, {.add_special = false});
}

}  // namespace

Result<int> ChatCommand(const Arguments& arguments) {
  ModelOptions options;
  SamplingOptions sampling;
  std::string system;
  JsonObject kwargs;
  std::vector<OptionGroup> groups = options.Groups();
  groups.push_back(
      {"Conversation",
       {{.name = "system", .target = &system, .help = "system message before the conversation", .value_hint = "TEXT"},
        ChatTemplateKwargs(kwargs)}});
  groups.push_back(sampling.Group());
  TEMPER_ASSIGN_OR_RETURN(const bool go, ReadCommandOptions(arguments, std::move(groups), kUsage));
  if (!go) return 0;
  TEMPER_RETURN_IF_ERROR(RequireOption(options.choice.model, "model"));
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context, ChatContext::Create(Today(), kwargs));
  TEMPER_ASSIGN_OR_RETURN(DecodingModel model, OpenForDecoding(options));
  if (!model.chat_template) {
    return InvalidArgument(model.opened.folder() + " has no chat template; temper generate continues raw text");
  }
  TEMPER_RETURN_IF_ERROR(StartSession(model, options, kContext));

  const bool prompt = isatty(STDIN_FILENO) != 0;
  const OrderedJson start =
      system.empty() ? OrderedJson::array() : OrderedJson{{{"role", "system"}, {"content", system}}};
  OrderedJson messages = start;
  std::string line;
  while (true) {
    if (prompt) std::fputs("you> ", stderr);
    if (!std::getline(std::cin, line) || line.empty()) break;
    if (line == "/new") {
      messages = start;
      continue;
    }
    const OrderedJson message = {{"role", "user"}, {"content", line}};
    const auto too_long = [&](const std::vector<int32_t>& tokens) {
      return static_cast<int64_t>(tokens.size()) >= model.session->context();
    };
    messages.push_back(message);
    TEMPER_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeConversation(model, messages, context.options()));
    if (too_long(ids)) {
      LogWarning(
          fmt::format("the conversation has reached the {} tokens of the context: earlier messages are "
                      "forgotten",
                      model.session->context()));
      messages = start;
      messages.push_back(message);
      TEMPER_ASSIGN_OR_RETURN(ids, EncodeConversation(model, messages, context.options()));
    }
    if (too_long(ids)) {
      LogWarning(fmt::format("this message has {} tokens, too many for the context of {}: shorten it", ids.size(),
                             model.session->context()));
      messages = start;
      continue;
    }
    model.session->Reset();  // templates may rewrite earlier turns, so the whole conversation is fed again
    TEMPER_ASSIGN_OR_RETURN(const std::vector<int32_t> answer, StreamAnswer(model, ids, sampling));
    messages.push_back({{"role", "assistant"}, {"content", model.tokenizer->Decode(answer)}});
  }
  return 0;
}

}  // namespace temper
