// temper inspect: lists files and checks that they are valid.
#include "checkpoint/inspect.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "checkpoint/companion_files.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "format/lora_config.h"
#include "run/opened_model.h"

namespace temper {
namespace {

constexpr char kInspectUsage[] =
    "usage: temper inspect MODEL [--all] [--tensors] [--json]\n\n"
    "Checks and lists a safetensors file, model folder, adapter, checkpoint or output folder. Exits 0 only if all is "
    "valid. MODEL may be a name in the Hugging Face cache.\n";

struct InspectSettings {
  std::string path;
  InspectOptions options;

  std::vector<OptionGroup> Groups() {
    return {{"Inspect",
             {{.name = "model", .target = &path, .help = "what to inspect: a file or a folder"},
              {.name = "all",
               .target = &options.all,
               .help = "list all kinds of tensors and each checkpoint in full, not what fits a screen"},
              {.name = "tensors", .target = &options.list_tensors, .help = "list every tensor"},
              {.name = "json", .target = &options.json, .help = "print one JSON object, with every tensor"}}}};
  }
};

// Checks that the folder's tokenizer and chat template, if any,
// are not corrupt. One that Temper does not support may be valid.
Status CheckTexts(const OpenedModel& model) {
  for (const Status& s : {model.LoadTokenizer().status(), model.LoadChatTemplate(nullptr).status()}) {
    if (s.code() == StatusCode::kCorrupt) return s;
    if (!s.ok() && s.code() != StatusCode::kNotFound) LogWarning(s.message());
  }
  return OkStatus();
}

// Checks that a model folder's weights are those that its config.json describes.
Status CheckModel(Env& env, const std::string& path) {
  if (!env.IsFile(JoinPath(path, kModelConfigFile)) || env.IsFile(JoinPath(path, kAdapterConfigFile))) {
    return OkStatus();
  }
  auto model = OpenedModel::Open(env, {.model = path});
  if (model.status().code() == StatusCode::kUnsupported) {
    LogWarning("cannot compare the weights with config.json: " + model.status().message());
    return OkStatus();
  }
  TEMPER_RETURN_IF_ERROR(model.status());
  TEMPER_RETURN_IF_ERROR(model->OpenWeights());
  return CheckTexts(*model);
}

Result<int> InspectPath(const Arguments& arguments) {
  InspectSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kInspectCommand));
  if (!line) return 0;
  const InspectOptions& options = settings.options;
  TEMPER_RETURN_IF_ERROR(RequireModel(settings.path, kInspectCommand));
  TEMPER_ASSIGN_OR_RETURN(const std::string path, FindModelPath(PosixEnv(), settings.path));
  TEMPER_RETURN_IF_ERROR(Inspect(PosixEnv(), path, options, [](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
  }));
  TEMPER_RETURN_IF_ERROR(CheckModel(PosixEnv(), path));
  return 0;
}

}  // namespace

const Command kInspectCommand = {.name = "inspect",
                                 .summary = "check and list a safetensors file, model, adapter or checkpoint",
                                 .usage = kInspectUsage,
                                 .first_word = FirstWord::kModel,
                                 .words = "",
                                 .run = InspectPath,
                                 .read_options = ReadOptionsOf<InspectSettings>};

}  // namespace temper
