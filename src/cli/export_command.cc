// temper export: writes a model for other tools: a Hugging Face folder, or a GGUF file.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/processors.h"
#include "base/team.h"
#include "checkpoint/export.h"
#include "checkpoint/gguf_adapter.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/run_file.h"
#include "data/tokenizer/new_tokens.h"
#include "program/program.h"
#include "run/gguf_plan.h"
#include "run/model_card.h"
#include "run/model_options.h"
#include "run/new_words.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr char kExportUsage[] =
    "usage: temper export MODEL [MODEL ...] --output_dir FOLDER [--option value ...]\n\n"
    "Writes a Hugging Face folder that transformers loads, or with --format gguf a file that llama.cpp and Ollama "
    "load;\n"
    "an adapter is merged into its base. Of several models, such as the last checkpoints of a run, their mean.\n";
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
  bool merge = true;
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
    options.options.push_back(
        {.name = "merge", .target = &merge, .help = "gguf: false writes the adapter alone, for a base file beside it"});
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

// `others`: with which the model is averaged.
Status ExportFolder(const ExportSettings& settings, const OpenedModel& model, const std::vector<OpenedModel>& others) {
  const auto& [choice, output_dir, format, type, mix, threads, add_tokens, merge, overwrite] = settings;
  if (!add_tokens.empty() && !others.empty()) {
    return InvalidArgument("--add_tokens grows one model: export the mean, then add tokens to its folder");
  }
  std::vector<ExportSpec> specs;
  TEMPER_ASSIGN_OR_RETURN(specs.emplace_back(), model.ExportPlan());
  for (const OpenedModel& other : others) {
    TEMPER_ASSIGN_OR_RETURN(specs.emplace_back(), other.ExportPlan());
  }
  ExportSpec& spec = specs.front();
  spec.output_dir = output_dir;
  spec.overwrite = overwrite;
  if (type != ExportType::kStored) {
    spec.dtype = type == ExportType::kBf16 ? DType::kBF16 : type == ExportType::kF16 ? DType::kF16 : DType::kF32;
  }
  std::vector<AddedToken> added;
  if (!add_tokens.empty()) {
    TEMPER_ASSIGN_OR_RETURN(added, ReadNewTokens(PosixEnv(), add_tokens));
    TEMPER_RETURN_IF_ERROR(AddNewWords(PosixEnv(), model, add_tokens, &added, &spec));
  }
  ExportProgress progress;
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report,
                          ExportMean(PosixEnv(), specs, progress.Exporting(), progress.Verifying()));
  const bool adapter = model.adapter().has_value();
  if (others.empty()) {
    TEMPER_RETURN_IF_ERROR(
        WriteExportedCard(PosixEnv(), adapter ? model.source().adapter_folder : model.folder(), adapter, output_dir));
  } else if (const std::string card = JoinPath(output_dir, kModelCardFile); IsOwnModelCard(PosixEnv(), card)) {
    TEMPER_RETURN_IF_ERROR(PosixEnv().RemoveFile(card));  // of an earlier export: no card tells of a mean
  }
  Report(report, others.empty() ? output_dir : fmt::format("{}: the mean of {} models", output_dir, specs.size()));
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

Status ExportAdapterFile(const ExportSettings& settings, const OpenedModel& model) {
  TEMPER_ASSIGN_OR_RETURN(GgufExportSpec spec, PlanGgufAdapter(model));
  spec.source.output_dir = settings.output_dir;
  spec.source.overwrite = settings.overwrite;
  spec.mix = settings.mix;
  spec.file = fmt::format("adapter-{}.gguf", NameOf(settings.mix));
  const std::string path = JoinPath(settings.output_dir, spec.file);
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report, ExportGgufAdapter(PosixEnv(), spec));
  Report(report, path);
  LogInfo(
      fmt::format("llama.cpp adds it to a GGUF file of its base: -m BASE.gguf --lora {}; in an Ollama "
                  "Modelfile behind FROM: ADAPTER ./{}",
                  path, spec.file));
  return OkStatus();
}

// Takes the models that follow the first one out of the front of a line.
std::vector<std::string> TakeOthers(Arguments& line) {
  const auto is_option = [](const std::string& word) {
    return word.starts_with("-") || (word.find('=') != word.npos && !PosixEnv().IsFolder(word));
  };
  const auto end = std::find_if(line.begin(), line.end(), is_option);
  std::vector<std::string> others;
  if (end - line.begin() < 2) return others;
  others.assign(line.begin() + 1, end);
  line.erase(line.begin() + 1, end);
  return others;
}

Result<int> Export(const Arguments& arguments) {
  ExportSettings settings;
  Arguments words = arguments;
  const std::vector<std::string> averaged = TakeOthers(words);
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(words, settings.Groups(), kExportCommand));
  if (!line) return 0;
  TEMPER_RETURN_IF_ERROR(RequireModel(settings.choice.model, kExportCommand));
  TEMPER_RETURN_IF_ERROR(RequireOption(settings.output_dir, "output_dir"));
  const bool gguf = settings.format == ExportFormat::kGguf;
  for (const char* name : {"gguf_type", "merge", "threads"}) {
    if (!gguf && line->Sets(name)) return InvalidArgument(fmt::format("--{} is for --format gguf", name));
  }
  if (gguf && line->Sets("add_tokens")) {
    return InvalidArgument("--add_tokens is for --format hf: train the new rows before you write a GGUF file");
  }
  if (gguf && line->Sets("dtype")) {
    return InvalidArgument("--dtype is for --format hf: give the type of a GGUF file with --gguf_type");
  }
  if (!averaged.empty() && gguf) {
    return InvalidArgument("a mean of models is written with --format hf: export that folder to GGUF afterwards");
  }
  if (!averaged.empty() && !settings.choice.adapter.empty()) {
    return InvalidArgument("--adapter is for one model: name the adapters themselves to average their models");
  }
  TEMPER_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(PosixEnv(), settings.choice));
  std::vector<OpenedModel> others;
  for (const std::string& name : averaged) {
    if (IsRunFile(name)) return InvalidArgument(fmt::format("{}: name the run's output folder, or a checkpoint", name));
    ModelChoice other = settings.choice;
    other.model = name;
    TEMPER_ASSIGN_OR_RETURN(OpenedModel opened, OpenedModel::Open(PosixEnv(), other));
    others.push_back(std::move(opened));
  }
  if (!settings.merge) {
    TEMPER_RETURN_IF_ERROR(ExportAdapterFile(settings, model));
  } else {
    TEMPER_RETURN_IF_ERROR(gguf ? ExportGgufFile(settings, model) : ExportFolder(settings, model, others));
  }
  return 0;
}

}  // namespace

const Command kExportCommand = {
    .name = "export",
    .summary = "write a Hugging Face model folder or a GGUF file, with the adapter merged, or the mean of models",
    .usage = kExportUsage,
    .first_word = FirstWord::kModel,
    .words = "",
    .run = Export,
    .read_options = ReadOptionsOf<ExportSettings>,
    .writes_files = true};

}  // namespace temper
