#include "cli/command_options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "base/progress_text.h"
#include "cli/run_file.h"
#include "format/quoted.h"

namespace temper {

namespace {

// A first word becomes the option "model", or sets what the file of a run says; any other word is an error.
Status TakeWords(CommandLine& line, const Command& command, const OptionSet& options) {
  std::vector<std::string> words = std::move(line.positional);
  line.positional.clear();
  for (const std::string& word : words) {
    if (const size_t equals = word.find('='); equals != word.npos && options.Find(word.substr(0, equals))) {
      return InvalidArgument(fmt::format("command line: '{}' needs two dashes: --{}", word, word));
    }
  }
  const bool takes_model = TakesModel(command.first_word);
  if (!words.empty() && takes_model) {
    if (IsRunFile(words[0])) {
      TEMPER_RETURN_IF_ERROR(TakeRunFile(words[0], command, options));
    } else {
      line.settings.insert(line.settings.begin(), {"model", words[0]});
    }
    words.erase(words.begin());
  }
  if (words.empty()) return OkStatus();
  return InvalidArgument(fmt::format("{} is not an option: this command takes {}--option value", Quoted(words[0]),
                                     takes_model ? "one model, then " : "only "));
}

}  // namespace

Result<std::optional<CommandLine>> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups,
                                                      const Command& command) {
  const OptionSet options(std::move(groups), ForeignNames());
  TEMPER_ASSIGN_OR_RETURN(CommandLine line, ReadCommandLine(arguments, options));
  if (line.help) {
    std::fputs(HelpText(command.usage, options, ColumnsOf(STDOUT_FILENO).value_or(kHelpWidth)).c_str(), stdout);
    return std::optional<CommandLine>();
  }
  TEMPER_RETURN_IF_ERROR(TakeWords(line, command, options));
  TEMPER_RETURN_IF_ERROR(ApplyCommandLine(line, options));
  TEMPER_RETURN_IF_ERROR(options.CheckRanges());
  return std::optional<CommandLine>(std::move(line));
}

Status RequireOption(const std::string& value, const char* option) {
  return value.empty() ? InvalidArgument(fmt::format("--{} is required; see --help", option)) : OkStatus();
}

Status RequireModel(const std::string& model, const Command& command) {
  return model.empty() ? InvalidArgument(fmt::format("name a model: temper {} MODEL; see --help", command.name))
                       : OkStatus();
}

}  // namespace temper
