// temper inspect: lists files and checks that they are valid.
#include "checkpoint/inspect.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "checkpoint/companion_files.h"
#include "cli/commands.h"
#include "format/lora_config.h"
#include "run/opened_model.h"

namespace temper {
namespace {

constexpr char kUsage[] =
    "usage: temper inspect PATH|NAME [--tensors]\n\n"
    "Checks and lists a safetensors file, model folder, adapter, checkpoint or output folder. Exits 0 only if all is "
    "valid. NAME: of a model in the Hugging Face cache.\n\n"
    "  --tensors    list every tensor, not a summary\n";

// Checks that the folder's tokenizer and chat template, if any,
// are not corrupt. One that Temper does not support may be valid.
Status CheckTexts(const OpenedModel& model) {
  for (const Status& s : {model.LoadTokenizer().status(), model.LoadChatTemplate().status()}) {
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

}  // namespace

Result<int> InspectCommand(const Arguments& arguments) {
  InspectOptions options;
  std::string path;
  for (const std::string& a : arguments) {
    if (a == "--help" || a == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (a == "--tensors") {
      options.list_tensors = true;
    } else if (!a.starts_with("-") && path.empty()) {
      path = a;
    } else {
      return InvalidArgument(fmt::format("unknown argument '{}'; usage: temper inspect PATH [--tensors]", a));
    }
  }
  if (path.empty()) return InvalidArgument("usage: temper inspect PATH [--tensors]");
  TEMPER_ASSIGN_OR_RETURN(path, FindModelPath(PosixEnv(), path));
  TEMPER_RETURN_IF_ERROR(Inspect(PosixEnv(), path, options, [](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
  }));
  TEMPER_RETURN_IF_ERROR(CheckModel(PosixEnv(), path));
  return 0;
}

}  // namespace temper
