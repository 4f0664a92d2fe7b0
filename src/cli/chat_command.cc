// temper chat: a conversation at the terminal. Prompts go to stderr, the model's answers to stdout.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/chat_terminal.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/print_answer.h"
#include "config/run_options.h"
#include "format/quoted.h"
#include "run/chat_context.h"
#include "run/decoding.h"
#include "run/machine.h"

namespace temper {
namespace {

constexpr char kChatUsage[] =
    "usage: temper chat MODEL [--system TEXT] [--option value ...]\n\n"
    "Talks to a model. One line is one message, and so is what is pasted. Ctrl-C stops an answer, Ctrl-D leaves;\n"
    "/help lists commands.\n";

constexpr char kHelp[] =
    "  /new          forget the conversation\n"
    "  /system TEXT  replace the system message; without TEXT: remove it\n"
    "  /help         show this list\n"
    "  /quit         leave, as Ctrl-D does\n"
    "  Ctrl-C        stop the answer\n"
    "A message that begins with a slash: write a space before it.";

constexpr int64_t kContext = 4096;  // tokens of conversation kept, if the model has so many positions

struct ChatSettings {
  ModelOptions model;
  SamplingOptions sampling = {.max_new_tokens = 1024};
  std::string system;
  JsonObject kwargs;

  std::vector<OptionGroup> Groups() {
    std::vector<OptionGroup> groups = model.Groups();
    groups.push_back(
        {"Conversation",
         {{.name = "system", .target = &system, .help = "system message before the conversation", .value_hint = "TEXT"},
          ChatTemplateKwargs(kwargs)}});
    groups.push_back(sampling.Group());
    return groups;
  }
};

OrderedJson AsMessage(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// The messages so far. Templates may rewrite earlier turns, so each answer continues the whole conversation, rendered
// anew; the model reads what has changed.
class Conversation {
 public:
  Conversation(DecodingModel& model, const ChatOptions& template_options, const SamplingOptions& sampling,
               std::string system)
      : model_(model), template_options_(template_options), sampling_(sampling), system_(std::move(system)) {}

  void Forget() { turns_ = OrderedJson::array(); }
  void SetSystem(std::string text) { system_ = std::move(text); }

  // Adds `text` and streams the answer, until `stopped` returns true. Without an answer the message is dropped again.
  Status AnswerTo(const std::string& text, const std::function<bool()>& stopped) {
    const OrderedJson before = turns_;
    turns_.push_back(AsMessage("user", text));
    const auto answered = TryAnswer(stopped);
    if (!answered.ok() || !*answered) turns_ = before;
    return answered.status();
  }

 private:
  // Tokens of the whole conversation up to the model's next answer.
  Result<std::vector<int32_t>> Encode() const {
    OrderedJson messages = OrderedJson::array();
    if (!system_.empty()) messages.push_back(AsMessage("system", system_));
    messages.insert(messages.end(), turns_.begin(), turns_.end());
    return EncodeChat(model_, messages, template_options_);
  }

  // False: there is no answer.
  Result<bool> TryAnswer(const std::function<bool()>& stopped) {
    const int64_t context = model_.engine->context();
    const auto too_long = [&](const std::vector<int32_t>& tokens) {
      return static_cast<int64_t>(tokens.size()) >= context;
    };
    TEMPER_ASSIGN_OR_RETURN(std::vector<int32_t> ids, Encode());
    if (too_long(ids) && turns_.size() > 1) {
      LogWarning(fmt::format(
          "the conversation has reached the {} tokens of the context: earlier messages are forgotten", context));
      turns_ = OrderedJson::array({turns_.back()});
      TEMPER_ASSIGN_OR_RETURN(ids, Encode());
    }
    if (too_long(ids)) {
      LogWarning(
          fmt::format("this message has {} tokens, too many for the context of {}: shorten it", ids.size(), context));
      return false;
    }
    TEMPER_ASSIGN_OR_RETURN(const Answer answer, PrintAnswer(model_, ids, sampling_, stopped));
    if (stopped()) {
      LogInfo("(stopped)");
    } else if (answer.cut_off.empty() && static_cast<int64_t>(answer.tokens.size()) >= sampling_.max_new_tokens) {
      LogWarning(fmt::format("the answer is cut off after {} tokens: raise --max_new_tokens", answer.tokens.size()));
    }
    if (answer.tokens.empty() && stopped()) return false;
    turns_.push_back(AsMessage("assistant", TurnOf(model_, answer)));
    return true;
  }

  DecodingModel& model_;
  const ChatOptions template_options_;
  const SamplingOptions& sampling_;
  std::string system_;
  OrderedJson turns_ = OrderedJson::array();
};

// The command of a line: a slash and letters, then the end or a space. "/etc/hosts is what?" is a message.
struct TypedCommand {
  std::string name, text;

  static std::optional<TypedCommand> Of(const std::string& line) {
    if (!line.starts_with('/')) return std::nullopt;
    const std::string name = line.substr(1, line.find(' ') - 1);
    const bool letters =
        !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c); });
    if (!letters) return std::nullopt;
    const size_t text = line.find_first_not_of(' ', 1 + name.size());
    return TypedCommand{name, text == line.npos ? "" : line.substr(text)};
  }
};

// False: leave.
bool Obey(const TypedCommand& command, Conversation& conversation) {
  if (command.name == "quit" || command.name == "exit" || command.name == "bye") return false;
  if (command.name == "new") {
    conversation.Forget();
    LogInfo("a new conversation: what was said is forgotten");
  } else if (command.name == "system") {
    conversation.SetSystem(command.text);
    LogInfo(command.text.empty() ? "no system message from now on"
                                 : "the system message is set, also for what was said");
  } else if (command.name == "help") {
    LogInfo(kHelp);
  } else {
    LogWarning(fmt::format("there is no command {}; /help lists them", Quoted("/" + command.name)));
  }
  return true;
}

Result<int> Chat(const Arguments& arguments) {
  ChatSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kChatCommand));
  if (!line) return 0;
  TEMPER_RETURN_IF_ERROR(RequireModel(settings.model.choice.model, kChatCommand));
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context, ChatContext::Create(Today(), settings.kwargs));
  TEMPER_ASSIGN_OR_RETURN(DecodingModel model, OpenForDecoding(settings.model));
  if (!model.chat_template) {
    return InvalidArgument(model.opened.folder() + " has no chat template: choose one with --chat_template (" +
                           KnownTemplateNames() + ", or a file); temper generate continues raw text");
  }
  if (settings.sampling.TakeFrom(model.generation)) LogInfo(settings.sampling.Describe());
  TEMPER_RETURN_IF_ERROR(StartEngine(model, settings.model, kContext));

  ChatTerminal terminal;
  if (terminal.interactive()) {
    LogInfo(fmt::format("{} ({}), {} on {}\n/help lists commands; Ctrl-C stops an answer, Ctrl-D leaves",
                        settings.model.choice.model, model.opened.model().facts().architecture,
                        ToString(settings.model.ResolvedDType(model.choice)), model.choice.name));
  }
  Conversation conversation(model, context.options(), settings.sampling, settings.system);
  while (const auto typed = terminal.ReadLine()) {
    if (typed->empty()) continue;
    if (const auto command = TypedCommand::Of(*typed)) {
      if (!Obey(*command, conversation)) break;
      continue;
    }
    const Status answered = conversation.AnswerTo(*typed, [&] { return terminal.Interrupted(); });
    if (answered.ok()) continue;
    // A script must see that it failed; a person may write another message.
    if (!terminal.interactive()) return answered;
    LogError(answered.message());
  }
  return 0;
}

}  // namespace

const Command kChatCommand = {.name = "chat",
                              .summary = "talk to a model",
                              .usage = kChatUsage,
                              .first_word = FirstWord::kModel,
                              .words = "",
                              .run = Chat,
                              .read_options = ReadOptionsOf<ChatSettings>};

}  // namespace temper
