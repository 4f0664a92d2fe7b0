// temper export: writes a model for other tools: a Hugging Face folder, or a GGUF file.
#include <fmt/core.h>

#include <optional>

#include "base/log.h"
#include "base/processors.h"
#include "base/team.h"
#include "checkpoint/export.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "program/program.h"
#include "run/gguf_plan.h"
#include "run/model_card.h"
#include "run/model_options.h"
#include "run/new_words.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr char kExportUsage[] =
    "usage: temper export MODEL --output_dir FOLDER [--option value ...]\n\n"
    "Writes a Hugging Face folder that transformers loads, or with --format gguf a file that llama.cpp and Ollama "
    "load;\n"
    "an adapter is merged into its base.\n";
constexpr char kModelfile[] = "Modelfile";
enum class ExportFormat { kHuggingFace, kGguf };
enum class ExportType { kStored, kBf16, kF16, kF32 };

struct ExportSettings {
  ModelChoice choice;
  std::string output_dir;
  ExportFormat format = ExportFormat::kHuggingFace;
  ExportType type = ExportType::kStored;
  QuantMix mix = QuantMix::kF16;
  std::optional<int64_t> threads;
  std::string add_tokens;
  bool overwrite = false;

  std::vector<OptionGroup> Groups() {
    OptionGroup options{"Export", OptionsOf(choice, "adapter to merge into the model")};
    options.options.push_back({.name = "output_dir", .target = &output_dir, .help = "folder to write"});
    options.options.push_back(
        {.name = "format",
         .target = ChoiceOf(format, {"hf", "gguf"}),
         .help = "hf: a folder for transformers; gguf: a file for llama.cpp, with an Ollama Modelfile"});
    options.options.push_back({.name = "dtype",
                               .target = ChoiceOf(type, {"stored", "bf16", "f16", "f32"}),
                               .help = "hf: type of the written weights; stored: the base model's"});
    options.options.push_back({.name = "gguf_type",
                               .target = ChoiceOf(mix, MixNames()),
                               .help = "gguf: type of the written weights, by llama.cpp's names"});
    options.options.push_back({.name = "threads",
                               .target = &threads,
                               .help = "gguf: threads that read and quantise",
                               .range = {.at_least = 1, .at_most = kMaxThreads},
                               .default_text = "the processors of this machine"});
    options.options.push_back(
        {.name = "add_tokens",
         .target = &add_tokens,
         .help = "hf: file with new tokens, one a line (or a JSON list): rows and tokenizer get them"});
    options.options.push_back(
        {.name = "overwrite", .target = &overwrite, .help = "replace the folder's contents; gguf: the file"});
    return {std::move(options)};
  }
};

// Shows how far reading for checksums and writing are.
class ExportProgress {
 public:
  TransferCallback Verifying() { return verifying_.Callback(); }
  TransferCallback Exporting() {
    return [this](Bytes done, Bytes total) {
      if (!exporting_) exporting_.emplace("export");
      exporting_->Update(done, total);
    };
  }

 private:
  TransferProgress verifying_{"verify"};
  std::optional<TransferProgress> exporting_;  // begins when all is verified
};

void Report(const ExportReport& report, const std::string& what) {
  for (const std::string& notice : report.notices) LogInfo(notice);
  LogInfo(fmt::format("{}: {} tensors, {}{}", what, report.tensors, ToString(report.bytes),
                      report.merged > 0 ? fmt::format(", {} merged with the adapter", report.merged) : ""));
}

Status ExportFolder(const ExportSettings& settings, const OpenedModel& model) {
  const auto& [choice, output_dir, format, type, mix, threads, add_tokens, overwrite] = settings;
  TEMPER_ASSIGN_OR_RETURN(ExportSpec spec, model.ExportPlan());
  spec.output_dir = output_dir;
  spec.overwrite = overwrite;
  if (type != ExportType::kStored) {
    spec.dtype = type == ExportType::kBf16 ? DType::kBF16 : type == ExportType::kF16 ? DType::kF16 : DType::kF32;
  }
  std::vector<AddedToken> added;
  if (!add_tokens.empty()) {
    TEMPER_ASSIGN_OR_RETURN(added, AddNewWords(PosixEnv(), model, add_tokens, &spec));
  }
  ExportProgress progress;
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report,
                          ExportModel(PosixEnv(), spec, progress.Exporting(), progress.Verifying()));
  const bool adapter = model.adapter().has_value();
  TEMPER_RETURN_IF_ERROR(
      WriteExportedCard(PosixEnv(), adapter ? model.source().adapter_folder : model.folder(), adapter, output_dir));
  Report(report, output_dir);
  if (added.empty()) return OkStatus();
  TEMPER_RETURN_IF_ERROR(CheckNewWords(PosixEnv(), output_dir, added));
  LogInfo(
      fmt::format("{} new tokens, {} to {}; {}. Beside an adapter their rows are trained by "
                  "lora.trainable_token_indices: {}",
                  added.size(), added.front().id, added.back().id,
                  spec.words > 0 ? fmt::format("tables grow to {} rows", spec.words)
                                 : std::string("the tables had free rows for them"),
                  RowsToTrain(model.model(), added)));
  return OkStatus();
}

Status ExportGgufFile(const ExportSettings& settings, const OpenedModel& model) {
  TEMPER_ASSIGN_OR_RETURN(GgufExportSpec spec, PlanGguf(PosixEnv(), model));
  spec.source.output_dir = settings.output_dir;
  spec.source.overwrite = settings.overwrite;
  spec.mix = settings.mix;
  spec.file = fmt::format("model-{}.gguf", NameOf(settings.mix));
  spec.threads = static_cast<int>(settings.threads.value_or(AvailableProcessors()));
  const std::string file = spec.file;
  TEMPER_ASSIGN_OR_RETURN(const std::string modelfile, ModelfileOf(model, file));
  // One that is not of this export may have been written by hand.
  const std::string beside = JoinPath(settings.output_dir, kModelfile);
  bool keeps = false;
  if (PosixEnv().IsFile(beside) && !settings.overwrite) {
    TEMPER_ASSIGN_OR_RETURN(const std::string before, ReadTextFile(PosixEnv(), beside, MiB(16)));
    keeps = before != modelfile;
  }
  ExportProgress progress;
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report,
                          ExportGguf(PosixEnv(), std::move(spec), progress.Exporting(), progress.Verifying()));
  if (keeps) {
    LogInfo(fmt::format("{} is kept as it is: point its FROM to {}, or add --overwrite", beside, file));
  } else {
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), beside, modelfile));
  }
  Report(report, JoinPath(settings.output_dir, file));
  return OkStatus();
}

Result<int> Export(const Arguments& arguments) {
  ExportSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kExportCommand));
  if (!line) return 0;
  TEMPER_RETURN_IF_ERROR(RequireModel(settings.choice.model, kExportCommand));
  TEMPER_RETURN_IF_ERROR(RequireOption(settings.output_dir, "output_dir"));
  const bool gguf = settings.format == ExportFormat::kGguf;
  for (const char* name : {"gguf_type", "threads"}) {
    if (!gguf && line->Sets(name)) return InvalidArgument(fmt::format("--{} is for --format gguf", name));
  }
  if (gguf && line->Sets("add_tokens")) {
    return InvalidArgument("--add_tokens is for --format hf: train the new rows before you write a GGUF file");
  }
  if (gguf && line->Sets("dtype")) {
    return InvalidArgument("--dtype is for --format hf: give the type of a GGUF file with --gguf_type");
  }
  TEMPER_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(PosixEnv(), settings.choice));
  TEMPER_RETURN_IF_ERROR(gguf ? ExportGgufFile(settings, model) : ExportFolder(settings, model));
  return 0;
}

}  // namespace

const Command kExportCommand = {.name = "export",
                                .summary = "write a Hugging Face model folder or a GGUF file, with the adapter merged",
                                .usage = kExportUsage,
                                .first_word = FirstWord::kModel,
                                .words = "",
                                .run = Export,
                                .read_options = ReadOptionsOf<ExportSettings>,
                                .writes_files = true};

}  // namespace temper
