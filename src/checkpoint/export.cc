#include "checkpoint/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/configured_dtype.h"
#include "checkpoint/mean_weights.h"
#include "checkpoint/training_state.h"
#include "checkpoint/weight_checksums.h"
#include "format/conversion.h"
#include "format/f16_range.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "format/sharded_safetensors_writer.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// Of f32 numbers held at a time while a tensor streams through.
constexpr int64_t kPieceBytes = 4 << 20;

bool IsWeightsFile(std::string_view name) {
  return name == "model.safetensors.index.json" || (name.starts_with("model") && name.ends_with(".safetensors"));
}

bool SameFolder(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

class Exporter {
  using Tensor = MergedWeights::Tensor;

 public:
  Exporter(Env& env, std::span<const ExportSpec> specs, const TransferCallback& progress,
           const TransferCallback& verifying)
      : env_(env), specs_(specs), spec_(specs.front()), progress_(progress), verifying_(verifying) {}

  Result<ExportReport> Run() {
    TEMPER_RETURN_IF_ERROR(CheckOutput());
    TEMPER_RETURN_IF_ERROR(OpenSources());
    TEMPER_RETURN_IF_ERROR(models_->Verify(verifying_));
    std::vector<TensorDeclaration> declared;
    for (const Tensor& t : weights().tensors()) {
      const auto parts = KeptParts(t);
      for (const auto& part : parts) declared.push_back({.name = part.tensor->name, .type = {}, .as = part.tensor});
      if (parts.empty()) declared.push_back({t.name, t.type});
    }
    TEMPER_ASSIGN_OR_RETURN(auto writer, ShardedSafetensorsWriter::Create(env_, spec_.output_dir, std::move(declared),
                                                                          {.max_shard = spec_.max_shard}));
    TEMPER_RETURN_IF_ERROR(PrepareOutput(writer.total_size()));
    TEMPER_RETURN_IF_ERROR(WriteWeights(writer));
    TEMPER_RETURN_IF_ERROR(RemoveStaleFiles(writer.file_names()));
    TEMPER_RETURN_IF_ERROR(WriteChecksumsOf(writer));
    TEMPER_RETURN_IF_ERROR(WriteCompanions());
    return std::move(report_);
  }

 private:
  Status CheckOutput() {
    const std::string& out = spec_.output_dir;
    if (env_.IsFile(out)) return InvalidArgument(fmt::format("--output_dir {} is a file", out));
    if (!env_.IsFolder(out)) return OkStatus();
    for (const ExportSpec& spec : specs_) {
      for (const std::string& input : {spec.source.model_folder, spec.source.adapter_folder}) {
        if (!input.empty() && SameFolder(out, input)) {
          return InvalidArgument(fmt::format("--output_dir {} is the folder being exported; give another one", out));
        }
      }
    }
    TEMPER_ASSIGN_OR_RETURN(const auto names, env_.List(out));
    for (const auto& [file, what] : {std::pair{kRunConfigFile, "a run"}, {kAdapterConfigFile, "an adapter"}}) {
      if (!env_.IsFile(JoinPath(out, file))) continue;
      return InvalidArgument(fmt::format(
          "--output_dir {} holds {} ({}), which an export would be mixed with; give another folder", out, what, file));
    }
    if (names.empty() || spec_.overwrite) return OkStatus();
    return InvalidArgument(fmt::format("--output_dir {} is not empty (it has {}); give another folder or --overwrite",
                                       out, Quoted(names.front())));
  }

  Status OpenSources() {
    const std::string& folder = spec_.source.model_folder;
    config_path_ = JoinPath(folder, kModelConfigFile);
    TEMPER_ASSIGN_OR_RETURN(companions_, CompanionFiles(env_, folder));
    std::erase_if(companions_, [&](const std::string& name) {
      const auto it = spec_.replaced.find(name);
      return it != spec_.replaced.end() && !it->second;
    });
    for (const auto& [name, text] : spec_.replaced) {
      if (text && std::count(companions_.begin(), companions_.end(), name) == 0) companions_.push_back(name);
    }
    if (spec_.config) {
      config_text_ = *spec_.config;
    } else {
      TEMPER_ASSIGN_OR_RETURN(config_text_, ReadTextFile(env_, config_path_, MiB(64)));
    }
    TEMPER_ASSIGN_OR_RETURN(config_, ParseOrderedPythonJson(config_text_, config_path_));
    if (!config_.is_object()) return Corrupt(config_path_ + ": should be a JSON object");
    dtype_ = spec_.dtype;
    if (!dtype_ && spec_.source.model_is_checkpoint) {
      const auto configured = ConfiguredDType(config_, config_path_);
      if (!configured.ok()) return Unsupported(configured.status().message() + "; give --dtype");
      dtype_ = configured->value_or(DType::kF32);
    }
    TEMPER_ASSIGN_OR_RETURN(MeanWeights models, MeanWeights::Open(env_, specs_, dtype_));
    models_.emplace(std::move(models));
    report_.notices = weights().notices();
    report_.tensors = std::ssize(weights().tensors());
    report_.merged = weights().merged();
    for (const Tensor& t : weights().tensors()) {
      if (t.from.quantised == nullptr) continue;
      const StoredFormat* const stored = RuleOf(t.from.quantised->format()).stored;
      const bool stays = stored != nullptr && stored->stays_in_exports;
      const bool changes = dtype_ || t.changed() || models_->several();
      bool& kept = keeps_format_.emplace(ModuleOf(t.name), stays).first->second;
      kept = kept && !changes;
    }
    return OkStatus();
  }

  std::string ModuleOf(const std::string& tensor) const {
    const auto known = spec_.modules_of.find(tensor);
    return known != spec_.modules_of.end() ? known->second : tensor.substr(0, tensor.rfind('.'));
  }

  // The tensors that a quantised weight has in files, where it stays so: where its format does in exports, no adapter
  // changes a weight of its module, and no type is asked for. Empty of other tensors.
  std::vector<QuantisedTensor::Part> KeptParts(const Tensor& tensor) const {
    if (tensor.from.quantised == nullptr || !keeps_format_.at(ModuleOf(tensor.name))) return {};
    return tensor.from.quantised->parts();
  }

  Status WriteChecksumsOf(const ShardedSafetensorsWriter& writer) {
    std::vector<FileChecksum> files;
    for (size_t i = 0; i < writer.file_names().size(); ++i) {
      files.push_back({writer.file_names()[i], writer.checksums()[i]});
    }
    report_.files.push_back(kChecksumsFile);
    return WriteChecksums(env_, spec_.output_dir, files);
  }

  // Where this is OK, the output folder is no model folder until its config.json is written, last of all.
  Status PrepareOutput(Bytes size) {
    TEMPER_RETURN_IF_ERROR(env_.CreateFolders(spec_.output_dir));
    TEMPER_RETURN_IF_ERROR(CheckFreeSpace(env_, spec_.output_dir, size));
    const std::string config = JoinPath(spec_.output_dir, kModelConfigFile);
    if (env_.IsFile(config)) TEMPER_RETURN_IF_ERROR(env_.RemoveFile(config));
    report_.bytes = size;
    return OkStatus();
  }

  Status WriteWeights(ShardedSafetensorsWriter& writer) {
    std::map<std::string, const Tensor*> by_name;
    std::map<std::string, QuantisedTensor::Part> kept;
    for (const Tensor& tensor : weights().tensors()) {
      by_name[tensor.name] = &tensor;
      for (const auto& part : KeptParts(tensor)) kept.emplace(part.tensor->name, part);
    }
    Bytes done{}, total{};
    for (const StoredTensor& stored : writer.order()) total += stored.bytes();
    for (const StoredTensor& stored : writer.order()) {
      if (const auto part = kept.find(stored.name); part != kept.end()) {
        TEMPER_RETURN_IF_ERROR(WriteStored(writer, stored.name, part->second));
      } else {
        const Tensor& tensor = *by_name.at(stored.name);
        const bool means = models_->several() && IsFloating(tensor.type.dtype);
        TEMPER_RETURN_IF_ERROR(means              ? WriteMean(writer, tensor)
                               : tensor.changed() ? WriteMerged(writer, tensor)
                                                  : WriteConverted(writer, tensor));
      }
      done += stored.bytes();
      if (progress_) progress_(done, total);
    }
    TEMPER_RETURN_IF_ERROR(writer.Finish());
    if (const std::string warning = range_.Warning(spec_.output_dir); !warning.empty()) LogWarning(warning);
    report_.files = writer.file_names();
    if (report_.files.size() > 1) report_.files.push_back("model.safetensors.index.json");
    return OkStatus();
  }

  // The bytes of a tensor of the base's.
  Status WriteStored(ShardedSafetensorsWriter& writer, const std::string& name, const QuantisedTensor::Part& stored) {
    const int64_t all = stored.tensor->bytes().v;
    out_.resize(static_cast<size_t>(std::min(kPieceBytes, all)));
    for (int64_t first = 0; first < all; first += kPieceBytes) {
      const auto part = std::span(out_).first(static_cast<size_t>(std::min(kPieceBytes, all - first)));
      TEMPER_RETURN_IF_ERROR(stored.file->ReadRange(stored.tensor->name, first, part));
      TEMPER_RETURN_IF_ERROR(writer.Append(name, part));
    }
    return OkStatus();
  }

  Status WriteConverted(ShardedSafetensorsWriter& writer, const Tensor& tensor) {
    const int64_t elements = tensor.type.shape.elements(), size = SizeOf(tensor.type.dtype);
    // Elements; the widest has 8 bytes. Of what is dequantised and turned by whole matrices, one of these.
    const bool turned = tensor.from.quantised != nullptr && tensor.from.quantised->transposed();
    const int64_t piece = turned ? elements / tensor.type.shape[0] : kPieceBytes / 8;
    out_.resize(static_cast<size_t>(std::min(piece, elements) * size));
    for (int64_t first = 0; first < elements; first += piece) {
      const auto part = std::span(out_).first(static_cast<size_t>(std::min(piece, elements - first) * size));
      TEMPER_RETURN_IF_ERROR(tensor.from.ReadElementsAs(first, tensor.type.dtype, part, staging_));
      range_.Note(tensor.name, tensor.type.dtype, part);
      TEMPER_RETURN_IF_ERROR(writer.Append(tensor.name, part));
    }
    return OkStatus();
  }

  Status WriteMerged(ShardedSafetensorsWriter& writer, const Tensor& tensor) {
    TEMPER_ASSIGN_OR_RETURN(const MergedWeights::Reader reader, weights().OpenReader(tensor));
    const int64_t all = tensor.type.shape[0], columns = reader.columns();
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / 4 / std::max<int64_t>(1, columns));  // rows
    const int64_t size = SizeOf(tensor.type.dtype);
    std::vector<float> w(static_cast<size_t>(std::min(piece, all) * columns));
    out_.resize(w.size() * static_cast<size_t>(size));
    for (int64_t row = 0; row < all; row += piece) {
      const int64_t rows = std::min(piece, all - row), elements = rows * columns;
      const std::span<float> part = std::span(w).first(static_cast<size_t>(elements));
      TEMPER_RETURN_IF_ERROR(reader.Read(row, rows, part, staging_));
      const auto bytes = std::span(out_).first(static_cast<size_t>(elements * size));
      Convert(DType::kF32, std::as_bytes(part).data(), tensor.type.dtype, bytes.data(), elements);
      range_.Note(tensor.name, tensor.type.dtype, bytes);
      TEMPER_RETURN_IF_ERROR(writer.Append(tensor.name, bytes));
    }
    return OkStatus();
  }

  Status WriteMean(ShardedSafetensorsWriter& writer, const Tensor& tensor) {
    TEMPER_ASSIGN_OR_RETURN(MeanWeights::Reader reader, models_->OpenReader(tensor));
    const int64_t columns = reader.columns(), size = SizeOf(tensor.type.dtype);
    const int64_t all = tensor.type.shape.elements() / std::max<int64_t>(1, columns);  // rows; of a scalar one
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / 8 / std::max<int64_t>(1, columns));
    std::vector<double> mean(static_cast<size_t>(std::min(piece, all) * columns));
    out_.resize(mean.size() * static_cast<size_t>(size));
    for (int64_t row = 0; row < all; row += piece) {
      const int64_t elements = std::min(piece, all - row) * columns;
      const std::span<double> part = std::span(mean).first(static_cast<size_t>(elements));
      TEMPER_RETURN_IF_ERROR(reader.Read(row, part, staging_));
      const auto bytes = std::span(out_).first(static_cast<size_t>(elements * size));
      Convert(DType::kF64, std::as_bytes(part).data(), tensor.type.dtype, bytes.data(), elements);
      range_.Note(tensor.name, tensor.type.dtype, bytes);
      TEMPER_RETURN_IF_ERROR(writer.Append(tensor.name, bytes));
    }
    return OkStatus();
  }

  // An earlier export's shards, index, tokenizer, ... would be taken for this one's.
  Status RemoveStaleFiles(const std::vector<std::string>& weights) {
    TEMPER_ASSIGN_OR_RETURN(auto names, CompanionFilesIn(env_, spec_.output_dir));
    TEMPER_ASSIGN_OR_RETURN(const auto all, env_.List(spec_.output_dir));
    std::copy_if(all.begin(), all.end(), std::back_inserter(names), IsWeightsFile);
    for (const std::string& name : names) {
      const bool ours = std::count(weights.begin(), weights.end(), name) ||
                        std::count(companions_.begin(), companions_.end(), name) ||
                        (name == "model.safetensors.index.json" && weights.size() > 1);
      if (!ours) TEMPER_RETURN_IF_ERROR(env_.RemoveFile(JoinPath(spec_.output_dir, name)));
    }
    return OkStatus();
  }

  Status WriteCompanions() {
    for (const std::string& name : companions_) {
      if (name == kModelConfigFile) continue;
      const std::string from = JoinPath(spec_.source.model_folder, name), to = JoinPath(spec_.output_dir, name);
      const auto replaced = spec_.replaced.find(name);
      TEMPER_RETURN_IF_ERROR(CreateFolderFor(env_, spec_.output_dir, name));
      TEMPER_RETURN_IF_ERROR(replaced == spec_.replaced.end() ? CopyFileDurably(env_, from, to).status()
                                                              : WriteTextFileAtomically(env_, to, *replaced->second));
      report_.files.push_back(name);
    }
    TEMPER_RETURN_IF_ERROR(
        WriteTextFileAtomically(env_, JoinPath(spec_.output_dir, kModelConfigFile), ExportedConfig()));
    report_.files.push_back(kModelConfigFile);
    return OkStatus();
  }

  // What modules_to_not_convert is taken to be where it is missing: its other name; of linear modules all but the head.
  OrderedJson OthersOf(const OrderedJson& quantisation) const {
    if (const auto it = quantisation.find("ignored_layers"); it != quantisation.end() && it->is_array()) return *it;
    const auto& tensors = weights().tensors();
    const bool of_linear = std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) {
      if (t.from.quantised == nullptr) return false;
      const StoredFormat* const stored = RuleOf(t.from.quantised->format()).stored;
      return stored == nullptr || !stored->of_experts;
    });
    return of_linear ? OrderedJson::array({spec_.head}) : OrderedJson::array();
  }

  // The base's text itself unless something in it changes.
  std::string ExportedConfig() {
    bool changed = false;
    if (spec_.dtype) {
      const char* key = config_.contains("dtype") ? "dtype" : "torch_dtype";
      const std::string name = TorchName(*spec_.dtype);
      changed = !config_.contains(key) || config_[key] != name;
      if (changed) config_[key] = name;
    }
    // What was quantised is exported in the type that it was quantised from, but for modules that keep their format:
    // then quantization_config names those that do not.
    if (std::any_of(keeps_format_.begin(), keeps_format_.end(), [](const auto& module) { return module.second; })) {
      OrderedJson& quantisation = config_["quantization_config"];
      for (const auto& [module, kept] : keeps_format_) {
        if (kept) continue;
        const bool compressed = quantisation.value("quant_method", "") == "compressed-tensors";
        OrderedJson& others = quantisation[compressed ? "ignore" : "modules_to_not_convert"];
        if (!others.is_array()) others = OthersOf(quantisation);
        others.push_back(module);
        changed = true;
      }
    } else if (!keeps_format_.empty()) {
      changed = config_.erase("quantization_config") > 0 || changed;
    }
    if (weights().untied()) {
      for (const std::string& key : spec_.tied_keys) config_[OrderedJson::json_pointer(key)] = false;
      changed = true;
    }
    if (spec_.words > 0) {
      config_[OrderedJson::json_pointer(spec_.words_key)] = spec_.words;
      changed = true;
    }
    return changed ? PrintPythonJson(config_, config_text_) : config_text_;
  }

  // Of the first model, which all is like but for numbers.
  const MergedWeights& weights() const { return models_->first(); }
  MergedWeights& weights() { return models_->first(); }

  Env& env_;
  const std::span<const ExportSpec> specs_;
  const ExportSpec& spec_;  // the first
  const TransferCallback &progress_, &verifying_;
  std::string config_path_, config_text_;
  OrderedJson config_;
  std::vector<std::string> companions_;
  std::optional<DType> dtype_;  // of all floating tensors; as stored where absent
  std::optional<MeanWeights> models_;
  std::map<std::string, bool> keeps_format_;  // by the module of each quantised weight
  F16Range range_;
  std::vector<std::byte> out_, staging_ = std::vector<std::byte>(TensorFile::kStagingBytes);
  ExportReport report_;
};

}  // namespace

Result<ExportReport> ExportModel(Env& env, const ExportSpec& spec, const TransferCallback& progress,
                                 const TransferCallback& verifying) {
  return ExportMean(env, std::span(&spec, 1), progress, verifying);
}

Result<ExportReport> ExportMean(Env& env, std::span<const ExportSpec> specs, const TransferCallback& progress,
                                const TransferCallback& verifying) {
  TEMPER_CHECK(!specs.empty()) << "no model to export";
  return Exporter(env, specs, progress, verifying).Run();
}

}  // namespace temper
