#include "cli/commands.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/edit_distance.h"
#include "base/log.h"
#include "base/standard_streams.h"
#include "format/quoted.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr const Command* kCommands[] = {
    &kTrainCommand,  &kPlanCommand,    &kGenerateCommand,   &kChatCommand,   &kEvalCommand,
    &kScoreCommand,  &kDataCommand,    &kImportCommand,     &kExportCommand, &kInspectCommand,
    &kDoctorCommand, &kVersionCommand, &kCompletionCommand, &kManCommand,
};

std::string Usage() {
  std::string text =
      "temper fine-tunes large language models on the hardware you have.\n\nusage: temper COMMAND [--option value "
      "...]\n\n";
  for (const Command* c : kCommands) text += fmt::format("  {:<10} {}\n", c->name, c->summary);
  return text + "\n`temper COMMAND --help` lists the options of a command.\n";
}

// Commands of LLaMA-Factory, Axolotl, TRL and others, and what does it here.
struct ForeignCommand {
  const char *names, *here;
};
constexpr ForeignCommand kForeignCommands[] = {
    {"finetune fine-tune lora pretrain pt", "temper train"},
    {"merge merge-lora merge_lora quantize convert fuse", "temper export MODEL --output_dir FOLDER"},
    {"evaluate evaluation benchmark lm-eval", "temper eval MODEL --data FILE"},
    {"inference infer predict run", "temper generate MODEL, or temper chat MODEL"},
    {"serve webui webchat api vllm-serve", "temper chat MODEL; a server reads what temper export writes"},
    {"preprocess tokenize", "temper data preview; temper train makes the tokens itself, and keeps them"},
    {"env info", "temper doctor"},
    {"config init", "temper train RUN.yaml; temper import FILE makes one of another tool's file"},
};

bool HasWord(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const bool begins = at == 0 || words[at - 1] == ' ', ends = at + word.size() == words.size();
    if (begins && (ends || words[at + word.size()] == ' ')) return true;
  }
  return false;
}

// "; did you mean 'train'?", or a hint at --help.
std::string CommandAdvice(const std::string& name) {
  for (const ObjectiveRule* const task : Objectives()) {
    if (name == task->name) return fmt::format("; write temper train --task {}", name);
  }
  for (const auto& [names, here] : kForeignCommands) {
    if (!name.empty() && HasWord(names, name)) return fmt::format("; here it is {}", here);
  }
  for (const Command* c : kCommands) {
    if (name.size() <= 16 && EditDistance(name, c->name) <= 1 + name.size() / 5) {
      return fmt::format("; did you mean '{}'?", c->name);
    }
  }
  return "; see temper --help";
}

int ExitCodeOf(StatusCode error) {
  if (error == StatusCode::kInUse) return kExitInUse;
  return error == StatusCode::kInvalidArgument ? 2 : 1;
}

int Dispatch(Arguments arguments) {
  // Like git: `temper help train`.
  if (arguments.size() == 2 && arguments[0] == "help") arguments = {arguments[1], "--help"};
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    std::fputs(Usage().c_str(), arguments.empty() ? stderr : stdout);
    return arguments.empty() ? 2 : 0;
  }
  const std::string name = arguments[0] == "--version" ? "version" : arguments[0];
  for (const Command* command : kCommands) {
    if (name != command->name) continue;
    command->writes_files ? GoOnWithoutReaders() : EndWithReaderOfStdout();
    const Result<int> code = command->run(Arguments(arguments.begin() + 1, arguments.end()));
    if (code.ok()) return *code;
    // Without a message: another rank of this run reports it.
    if (!code.status().message().empty()) LogError(code.status().message());
    return ExitCodeOf(code.status().code());
  }
  LogError(fmt::format("there is no command {}{}", Quoted(name), CommandAdvice(name)));
  return 2;
}

}  // namespace

std::span<const Command* const> Commands() {
  return kCommands;
}

int RunCommandLine(const Arguments& arguments) {
  const int code = Dispatch(arguments);
  // A script must not take half a report for a complete one: a full disk behind stdout only shows here.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return code;  // its reader wants no more
  LogError(fmt::format("the result could not be written to stdout: {}", std::strerror(errno)));
  return code == 0 ? 1 : code;
}

}  // namespace temper
