// temper export: writes a model folder for other tools.
#include <fmt/core.h>

#include "base/log.h"
#include "checkpoint/export.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "run/model_options.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr char kUsage[] =
    "usage: temper export --model FOLDER --output_dir FOLDER [--option value ...]\n\n"
    "Writes a Hugging Face folder that transformers loads; an adapter is merged into its base.\n";
enum class ExportType { kStored, kBf16, kF16, kF32 };

}  // namespace

Result<int> ExportCommand(const Arguments& arguments) {
  ModelChoice choice;
  std::string output_dir;
  ExportType type = ExportType::kStored;
  bool overwrite = false;
  OptionGroup options{"Export", OptionsOf(choice, "adapter to merge into the model")};
  options.options.push_back({.name = "output_dir", .target = &output_dir, .help = "folder to write"});
  options.options.push_back({.name = "dtype",
                             .target = ChoiceOf(type, {"stored", "bf16", "f16", "f32"}),
                             .help = "type of the written weights; stored: the base model's"});
  options.options.push_back({.name = "overwrite", .target = &overwrite, .help = "replace the folder's contents"});
  TEMPER_ASSIGN_OR_RETURN(const bool go, ReadCommandOptions(arguments, {std::move(options)}, kUsage));
  if (!go) return 0;
  TEMPER_RETURN_IF_ERROR(RequireOption(choice.model, "model"));
  TEMPER_RETURN_IF_ERROR(RequireOption(output_dir, "output_dir"));
  TEMPER_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(PosixEnv(), choice));
  TEMPER_ASSIGN_OR_RETURN(ExportSpec spec, model.ExportPlan());
  spec.output_dir = output_dir;
  spec.overwrite = overwrite;
  if (type != ExportType::kStored) {
    spec.dtype = type == ExportType::kBf16 ? DType::kBF16 : type == ExportType::kF16 ? DType::kF16 : DType::kF32;
  }
  TransferProgress progress("export");
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report, ExportModel(PosixEnv(), spec, progress.Callback()));
  for (const std::string& notice : report.notices) LogInfo(notice);
  LogInfo(fmt::format("{}: {} tensors, {}, {} merged with the adapter", output_dir, report.tensors,
                      ToString(report.bytes), report.merged));
  return 0;
}

}  // namespace temper
