// temper import: turns a configuration of another tool into one of ours.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/log.h"
#include "base/program_name.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "config/foreign_tools.h"
#include "config/import.h"
#include "config/run_options.h"
#include "config/task_options.h"
#include "data/template/known_templates.h"
#include "format/data_file_name.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr char kImportUsage[] =
    "usage: temper import FILE [-o RUN.yaml] [--option value ...]\n\n"
    "Turns a configuration of LLaMA-Factory, Axolotl or TRL (YAML, or a shell script with the command) into one for\n"
    "temper train. Comments say what each line comes from, what has no equivalent, and what changes its meaning.\n";

struct ImportSettings {
  std::string output;
  ForeignTool from = ForeignTool::kAny;
  const ObjectiveRule* as = nullptr;
  bool overwrite = false;

  std::vector<OptionGroup> Groups() {
    Option task = TaskOption(as);
    task.name = "as";
    task.help =
        "sft: a recipe for what is not trained here (by rewards, a teacher, chosen layers) becomes fine-tuning on "
        "given "
        "answers, instead of being refused; another: the trainer that a file of TRL is for, if its names do not show "
        "it";
    task.default_text = "as the file says";
    return {{"Import",
             {{.name = "output",
               .target = &output,
               .help = "write the configuration to this file (-o FILE does, too)",
               .default_text = "stdout",
               .value_hint = "FILE"},
              {.name = "from",
               .target = ChoiceOf(from, ForeignToolNames()),
               .help = "the tool that the file is for",
               .default_text = "recognised from the names in the file"},
              std::move(task),
              {.name = "overwrite", .target = &overwrite, .help = "replace the file of --output if there is one"}}}};
  }
};

Result<int> Import(const Arguments& arguments) {
  ImportSettings settings;
  Arguments rest = arguments;
  std::replace(rest.begin(), rest.end(), std::string("-o"), std::string("--output"));
  std::string file;
  if (!rest.empty() && !rest[0].starts_with('-')) {
    file = rest[0];
    rest.erase(rest.begin());
  }
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(rest, settings.Groups(), kImportCommand));
  if (!line) return 0;
  if (file.empty()) return InvalidArgument("name the configuration: temper import FILE; see --help");
  std::error_code no_such_file;
  if (std::filesystem::equivalent(file, settings.output, no_such_file)) {
    return InvalidArgument(fmt::format("output: {} is the file to import: name another", settings.output));
  }
  if (!settings.output.empty() && !settings.overwrite && std::filesystem::exists(settings.output, no_such_file)) {
    return InvalidArgument(
        fmt::format("output: {} exists: name another, or replace it with --overwrite", settings.output));
  }
  if (const DataFileKind kind = KindOfDataFile(file); HasRows(kind) && kind != DataFileKind::kJson) {
    return InvalidArgument(fmt::format(
        "{} is a file of rows: import takes the recipe that names them. temper data preview MODEL --data {} "
        "shows the rows",
        file, ShellWord(file)));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(PosixEnv(), file, MiB(1)));
  std::vector<std::string_view> templates;
  for (const KnownTemplate& known : KnownTemplates()) templates.push_back(known.name);
  if (const auto ours = ParseRunConfig(text, file); ours.ok() && !ours->model.model.empty()) {
    return InvalidArgument(fmt::format("{} is a file for Temper already: temper train {}", file, ShellWord(file)));
  }
  const auto run =
      ImportRun(PosixEnv(), text, file, {.tool = settings.from, .as = settings.as, .templates = templates});
  if (!run.ok()) return InvalidArgument(run.status().message());
  if (settings.output.empty()) {
    std::fputs(run->yaml.c_str(), stdout);
  } else {
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), settings.output, run->yaml));
    for (const std::string& sentence : run->lost) LogInfo("no equivalent  " + sentence);
    for (const std::string& sentence : run->changed) LogInfo("changes        " + sentence);
  }
  LogInfo(
      fmt::format("import      {} settings for Temper from {}'s {}; {} without an equivalent, {} with another meaning",
                  run->settings, ToString(run->tool), file, run->lost.size(), run->changed.size()));
  if (!settings.output.empty()) {
    LogInfo(fmt::format("next        {0} data preview {1}  # what is trained on; then {0} plan {1}", ProgramName(),
                        ShellWord(settings.output)));
  }
  return 0;
}

}  // namespace

const Command kImportCommand = {.name = "import",
                                .summary = "turn a LLaMA-Factory, Axolotl or TRL configuration into one for train",
                                .usage = kImportUsage,
                                .first_word = FirstWord::kYamlFile,
                                .words = "",
                                .run = Import,
                                .read_options = ReadOptionsOf<ImportSettings>};

}  // namespace temper
