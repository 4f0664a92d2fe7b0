// temper export and temper inspect: models leaving Temper, and files being looked at.
#include <fmt/format.h>

#include <cstdio>

#include "base/log.h"
#include "checkpoint/export.h"
#include "checkpoint/inspect.h"
#include "cli/commands.h"
#include "cli/model_options.h"

namespace temper {
namespace {

constexpr char kExportUsage[] =
    "usage: temper export --model FOLDER --output_dir FOLDER [--option value ...]\n\n"
    "Writes a Hugging Face folder that transformers loads; an adapter is merged into its base.\n";
constexpr char kInspectUsage[] =
    "usage: temper inspect PATH [--tensors]\n\n"
    "Checks and lists a safetensors file, model folder, adapter, checkpoint or output folder. Exits 0 only if all is "
    "valid.\n";

}  // namespace

Result<int> ExportCommand(const Arguments& arguments) {
  ModelChoice choice;
  std::string output_dir, dtype = "stored";
  bool overwrite = false;
  TEMPER_ASSIGN_OR_RETURN(
      const bool go,
      ReadCommandOptions(arguments,
                         {{"Export",
                           {{.name = "model",
                             .target = &choice.model,
                             .help = "model folder, adapter folder, output folder of a run, or checkpoint"},
                            {.name = "base",
                             .target = &choice.base,
                             .help = "base model of an adapter, where its configuration names another place"},
                            {.name = "adapter", .target = &choice.adapter, .help = "adapter to merge into the model"},
                            {.name = "output_dir", .target = &output_dir, .help = "folder to write"},
                            {.name = "dtype",
                             .target = &dtype,
                             .help = "type of the written weights: bf16, f16, f32, or stored (as the base has them)",
                             .value_hint = "TYPE"},
                            {.name = "overwrite", .target = &overwrite, .help = "replace what the folder holds"}}}},
                         kExportUsage));
  if (!go) return 0;
  TEMPER_RETURN_IF_ERROR(RequireOption(choice.model, "model"));
  TEMPER_RETURN_IF_ERROR(RequireOption(output_dir, "output_dir"));
  TEMPER_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(PosixEnv(), choice));
  TEMPER_ASSIGN_OR_RETURN(ExportSpec spec, model.ExportPlan());
  spec.output_dir = output_dir;
  spec.overwrite = overwrite;
  if (dtype != "stored") {
    TEMPER_ASSIGN_OR_RETURN(spec.dtype, ParseDType(dtype));
  }
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report, ExportModel(PosixEnv(), spec));
  for (const std::string& notice : report.notices) LogInfo(notice);
  LogInfo(fmt::format("{}: {} tensors, {}, {} merged with the adapter", output_dir, report.tensors,
                      ToString(report.bytes), report.merged));
  return 0;
}

Result<int> InspectCommand(const Arguments& arguments) {
  InspectOptions options;
  std::string path;
  for (const std::string& a : arguments) {
    if (a == "--help" || a == "-h") {
      std::fputs(kInspectUsage, stdout);
      return 0;
    }
    if (a == "--tensors") {
      options.list_tensors = true;
    } else if (!a.starts_with("-") && path.empty()) {
      path = a;
    } else {
      return InvalidArgument(fmt::format("'{}' is not understood; usage: temper inspect PATH [--tensors]", a));
    }
  }
  TEMPER_RETURN_IF_ERROR(path.empty() ? InvalidArgument("usage: temper inspect PATH [--tensors]") : OkStatus());
  TEMPER_RETURN_IF_ERROR(Inspect(PosixEnv(), path, options, [](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
  }));
  return 0;
}

}  // namespace temper
