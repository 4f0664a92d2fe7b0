// temper export: writes a model folder for other tools.
#include <fmt/core.h>

#include <optional>

#include "base/log.h"
#include "checkpoint/export.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "run/model_card.h"
#include "run/model_options.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr char kExportUsage[] =
    "usage: temper export MODEL --output_dir FOLDER [--option value ...]\n\n"
    "Writes a Hugging Face folder that transformers loads; an adapter is merged into its base.\n";
enum class ExportType { kStored, kBf16, kF16, kF32 };

struct ExportSettings {
  ModelChoice choice;
  std::string output_dir;
  ExportType type = ExportType::kStored;
  bool overwrite = false;

  std::vector<OptionGroup> Groups() {
    OptionGroup options{"Export", OptionsOf(choice, "adapter to merge into the model")};
    options.options.push_back({.name = "output_dir", .target = &output_dir, .help = "folder to write"});
    options.options.push_back({.name = "dtype",
                               .target = ChoiceOf(type, {"stored", "bf16", "f16", "f32"}),
                               .help = "type of the written weights; stored: the base model's"});
    options.options.push_back({.name = "overwrite", .target = &overwrite, .help = "replace the folder's contents"});
    return {std::move(options)};
  }
};

Result<int> Export(const Arguments& arguments) {
  ExportSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kExportCommand));
  if (!line) return 0;
  const auto& [choice, output_dir, type, overwrite] = settings;
  TEMPER_RETURN_IF_ERROR(RequireModel(choice.model, kExportCommand));
  TEMPER_RETURN_IF_ERROR(RequireOption(output_dir, "output_dir"));
  TEMPER_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(PosixEnv(), choice));
  TEMPER_ASSIGN_OR_RETURN(ExportSpec spec, model.ExportPlan());
  spec.output_dir = output_dir;
  spec.overwrite = overwrite;
  if (type != ExportType::kStored) {
    spec.dtype = type == ExportType::kBf16 ? DType::kBF16 : type == ExportType::kF16 ? DType::kF16 : DType::kF32;
  }
  TransferProgress verifying("verify");
  std::optional<TransferProgress> progress;  // begins when all is verified
  const auto exported = [&](Bytes done, Bytes total) {
    if (!progress) progress.emplace("export");
    progress->Update(done, total);
  };
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report, ExportModel(PosixEnv(), spec, exported, verifying.Callback()));
  const bool adapter = model.adapter().has_value();
  TEMPER_RETURN_IF_ERROR(
      WriteExportedCard(PosixEnv(), adapter ? model.source().adapter_folder : model.folder(), adapter, output_dir));
  for (const std::string& notice : report.notices) LogInfo(notice);
  LogInfo(fmt::format("{}: {} tensors, {}{}", output_dir, report.tensors, ToString(report.bytes),
                      report.merged > 0 ? fmt::format(", {} merged with the adapter", report.merged) : ""));
  return 0;
}

}  // namespace

const Command kExportCommand = {.name = "export",
                                .summary = "write a Hugging Face model folder, with the adapter merged",
                                .usage = kExportUsage,
                                .first_word = FirstWord::kModel,
                                .words = "",
                                .run = Export,
                                .read_options = ReadOptionsOf<ExportSettings>,
                                .writes_files = true};

}  // namespace temper
