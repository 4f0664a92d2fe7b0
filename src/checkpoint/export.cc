#include "checkpoint/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/configured_dtype.h"
#include "checkpoint/merge.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/training_state.h"
#include "checkpoint/weight_checksums.h"
#include "format/conversion.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "format/sharded_safetensors_writer.h"
#include "format/transpose.h"

namespace temper {
namespace {

// Of f32 numbers held at a time while a tensor streams through.
constexpr int64_t kPieceBytes = 4 << 20;

// What is merged into a tensor: a module's adapter, or of a stack that of one matrix of one part.
struct Merge {
  const LoraModule* module = nullptr;  // null: none
  int64_t first = 0, rows = 0;         // rows of B
  int64_t matrix = 0;                  // of module->matrices

  // Of the weight in the model's files.
  Shape shape() const { return module->transposed ? Shape{module->in, rows} : Shape{rows, module->in}; }
};

// One tensor of the export.
struct ExportJob {
  std::string name;          // in the export
  ModelWeights::Entry from;  // of the base
  Merge adapter;
  TensorType type;  // in the export
};

bool IsWeightsFile(std::string_view name) {
  return name == "model.safetensors.index.json" || (name.starts_with("model") && name.ends_with(".safetensors"));
}

bool SameFolder(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

// The tensors that a module's adapter changes, by the name that each is written under.
void AddMerges(const LoraModule& m, const std::vector<std::string>& tensors, std::map<std::string, Merge>* merges) {
  if (m.matrices == 0) {
    (*merges)[tensors.front()] = {.module = &m, .rows = m.out};
    return;
  }
  TEMPER_CHECK(tensors.size() == m.parts.size() * static_cast<size_t>(m.matrices)) << m.path;
  auto name = tensors.begin();
  int64_t first = 0;
  for (const LoraModule::Part& part : m.parts) {
    for (int64_t matrix = 0; matrix < m.matrices; ++matrix) {
      (*merges)[*name++] = {.module = &m, .first = first, .rows = part.rows, .matrix = matrix};
    }
    first += part.rows;
  }
}

std::vector<float> Turned(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> turned(matrix.size());
  Transpose(reinterpret_cast<const std::byte*>(matrix.data()), rows, columns, columns,
            reinterpret_cast<std::byte*>(turned.data()), rows, sizeof(float));
  return turned;
}

class Exporter {
 public:
  Exporter(Env& env, const ExportSpec& spec, const TransferCallback& progress, const TransferCallback& verifying)
      : env_(env), spec_(spec), progress_(progress), verifying_(verifying) {}

  Result<ExportReport> Run() {
    TEMPER_RETURN_IF_ERROR(CheckOutput());
    TEMPER_RETURN_IF_ERROR(OpenSources());
    TEMPER_RETURN_IF_ERROR(PlanTensors());
    TEMPER_RETURN_IF_ERROR(VerifySources());
    std::vector<TensorDeclaration> declared;
    for (const ExportJob& job : jobs_) declared.push_back({job.name, job.type});
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
    for (const std::string& input : {spec_.source.model_folder, spec_.source.adapter_folder}) {
      if (!input.empty() && SameFolder(out, input)) {
        return InvalidArgument(fmt::format("--output_dir {} is the folder being exported; give another one", out));
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
    TEMPER_ASSIGN_OR_RETURN(ModelWeights base, OpenModelWeights(env_, folder));
    base_.emplace(std::move(base));
    report_.notices = base_->notices();
    std::vector<FileTensor> of_base = spec_.tensors;
    if (spec_.adds_head) {
      std::erase_if(of_base, [&](const FileTensor& tensor) { return tensor.name == spec_.head_tensor; });
    }
    TEMPER_RETURN_IF_ERROR(CheckTensors(*base_, of_base));
    if (spec_.source.adapter_folder.empty()) return OkStatus();
    TEMPER_ASSIGN_OR_RETURN(AdapterReader adapter,
                            AdapterReader::Open(env_, spec_.source.adapter_folder, spec_.modules, spec_.copies));
    adapter_.emplace(std::move(adapter));
    return OkStatus();
  }

  Status VerifySources() const {
    TEMPER_RETURN_IF_ERROR(VerifyWeights(env_, spec_.source.model_folder, verifying_));
    const std::string& adapter = spec_.source.adapter_folder;
    return adapter.empty() ? OkStatus() : VerifyWeights(env_, adapter);
  }

  Status WriteChecksumsOf(const ShardedSafetensorsWriter& writer) {
    std::vector<FileChecksum> files;
    for (size_t i = 0; i < writer.file_names().size(); ++i) {
      files.push_back({writer.file_names()[i], writer.checksums()[i]});
    }
    report_.files.push_back(kChecksumsFile);
    return WriteChecksums(env_, spec_.output_dir, files);
  }

  Result<TensorType> ExportedType(const ModelWeights::Entry& entry) const {
    auto type = entry.tensor->type();
    if (!type.ok()) return type.status().WithContext(entry.file->path());
    if (dtype_ && IsFloating(type->dtype)) type->dtype = *dtype_;
    return *type;
  }

  // A tensor that the model does not compute with.
  Status KeepTensor(const ModelWeights::Entry& entry) {
    auto type = entry.tensor->type();
    if (!type.ok()) return type.status().WithContext(entry.file->path());
    jobs_.push_back({entry.tensor->name, entry, Merge(), *type});
    return OkStatus();
  }

  // Of the names of an untied head the one that is spelled as the table's in this folder.
  static const std::string& HeadBeside(const std::string& table, const std::vector<std::string>& heads) {
    const auto common = [&](const std::string& name) {
      return std::mismatch(name.begin(), name.end(), table.begin(), table.end()).first - name.begin();
    };
    return *std::max_element(heads.begin(), heads.end(),
                             [&](const auto& a, const auto& b) { return common(a) < common(b); });
  }

  // `copy`: the adapter's own in the place of `from`, if it has one.
  Status AddJob(const std::string& name, const ModelWeights::Entry& from, const ModelWeights::Entry& copy,
                const Merge& adapter) {
    TEMPER_ASSIGN_OR_RETURN(const TensorType type, ExportedType(from));
    const bool merges = adapter.module != nullptr;
    if (merges && (type.shape != adapter.shape() || !IsFloating(type.dtype))) {
      return Corrupt(fmt::format("{}: tensor {} is {}; the adapter is for {}", from.file->path(), name,
                                 from.tensor->ToString(), adapter.shape().ToString()));
    }
    jobs_.push_back({name, copy.tensor != nullptr ? copy : from, adapter, type});
    report_.merged += merges || copy.tensor != nullptr;
    return OkStatus();
  }

  // The adapter's head, in the type that the model's table of embeddings, its first tensor, is exported in.
  Status AddHead(const FileTensor& weight) {
    const ModelWeights::Entry head = CopyOf(weight.name, TrainedCopy::Readers::kHead);
    if (head.tensor == nullptr) {
      return InvalidArgument(fmt::format("{} has no {}, nor has an adapter: train a head first (temper train --task)",
                                         spec_.source.model_folder, weight.name));
    }
    TEMPER_ASSIGN_OR_RETURN(TensorType type, ExportedType(FindTensor(*base_, spec_.tensors.front())));
    type.shape = weight.shape;
    jobs_.push_back({weight.name, head, Merge(), type});
    ++report_.merged;
    return OkStatus();
  }

  // What the adapter has trained in full instead of a tensor of the model's, for those readers; without a tensor: it
  // has not.
  ModelWeights::Entry CopyOf(const std::string& tensor, TrainedCopy::Readers readers) const {
    for (const TrainedCopy& copy : spec_.copies) {
      const bool all = copy.readers == TrainedCopy::Readers::kAll;
      if (copy.tensor == tensor && (all || copy.readers == readers)) return adapter_->Find(copy);
    }
    return {};
  }

  // Which tensors the export has, by name: its bytes depend on the model alone, not on how the base's files are laid
  // out.
  Status PlanTensors() {
    const std::vector<std::string>& head_names = spec_.tensors_of.at(spec_.head);
    const auto is_heads = [&](const std::string& name) {
      return std::find(head_names.begin(), head_names.end(), name) != head_names.end();
    };
    std::map<std::string, Merge> modules;  // by the name that the weight is written under
    for (const LoraModule& m : spec_.modules) AddMerges(m, spec_.tensors_of.at(m.path), &modules);
    std::set<std::string> taken;  // names in the base's files
    for (const FileTensor& weight : spec_.tensors) {
      if (spec_.adds_head && weight.name == spec_.head_tensor) {
        TEMPER_RETURN_IF_ERROR(AddHead(weight));
        continue;
      }
      const ModelWeights::Entry entry = FindTensor(*base_, weight);
      taken.insert(weight.name);
      taken.insert(weight.aliases.begin(), weight.aliases.end());
      const auto own = modules.find(weight.name);
      const bool tied = weight.name == spec_.head_tensor && !is_heads(weight.name);
      // A tied table may be stored under the head's name alone; transformers writes it under the embedding's.
      const std::string name = tied && is_heads(entry.tensor->name) ? weight.name : entry.tensor->name;
      using Readers = TrainedCopy::Readers;
      const ModelWeights::Entry table = CopyOf(weight.name, Readers::kEmbedding);
      TEMPER_RETURN_IF_ERROR(AddJob(name, entry, table, own == modules.end() ? Merge() : own->second));
      if (own != modules.end()) modules.erase(own);
      if (!tied) continue;
      const ModelWeights::Entry of_head = CopyOf(weight.name, Readers::kHead);
      const auto head = modules.find(head_names.front());
      const bool adapted = head != modules.end();
      if (!adapted && table.tensor == of_head.tensor) continue;  // the same for both
      TEMPER_RETURN_IF_ERROR(AddJob(HeadBeside(name, head_names), entry, of_head, adapted ? head->second : Merge()));
      if (adapted) modules.erase(head);
      untied_ = true;
      report_.notices.push_back(
          adapted || of_head.tensor != nullptr
              ? "the adapter changes the output head, which the model ties to its embeddings: the export has both, "
                "untied"
              : "the adapter changes the embeddings, to which the model ties its output head: the export has both, "
                "untied");
    }
    if (!modules.empty()) {
      return InvalidArgument(fmt::format("the adapter adapts {}, which is not a weight of the model in {}",
                                         modules.begin()->first, spec_.source.model_folder));
    }
    if (!spec_.keeps_others) {
      for (const std::string& name : UnusedTensors(*base_, spec_.tensors, spec_.ignored)) {
        report_.notices.push_back(fmt::format("tensor {} is not of this architecture and is left out", Quoted(name)));
      }
    }
    int64_t kept = 0;
    for (const ModelWeights::Entry& e : base_->entries()) {
      if (!spec_.keeps_others || taken.contains(e.tensor->name)) continue;
      TEMPER_RETURN_IF_ERROR(KeepTensor(e));
      ++kept;
    }
    if (spec_.keeps_others) {
      report_.notices.push_back(
          kept > 0 ? fmt::format("{} tensors that are not part of the text model are kept as they are", kept)
                   : fmt::format("{} holds the text model alone: the export lacks the rest of the multimodal model",
                                 spec_.source.model_folder));
    }
    std::sort(jobs_.begin(), jobs_.end(), [](const ExportJob& a, const ExportJob& b) { return a.name < b.name; });
    report_.tensors = static_cast<int64_t>(jobs_.size());
    return OkStatus();
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
    std::map<std::string_view, const ExportJob*> by_name;
    for (const ExportJob& job : jobs_) by_name[job.name] = &job;
    Bytes done{}, total{};
    for (const ExportJob& job : jobs_) total += job.type.bytes();
    for (const StoredTensor& stored : writer.order()) {
      const ExportJob& job = *by_name.at(stored.name);
      TEMPER_RETURN_IF_ERROR(job.adapter.module != nullptr ? WriteMerged(writer, job) : WriteConverted(writer, job));
      done += job.type.bytes();
      if (progress_) progress_(done, total);
    }
    TEMPER_RETURN_IF_ERROR(writer.Finish());
    report_.files = writer.file_names();
    if (report_.files.size() > 1) report_.files.push_back("model.safetensors.index.json");
    return OkStatus();
  }

  Status WriteConverted(ShardedSafetensorsWriter& writer, const ExportJob& job) {
    const int64_t elements = job.type.shape.elements(), size = SizeOf(job.type.dtype);
    const int64_t piece = kPieceBytes / 8;  // elements; the widest has 8 bytes
    out_.resize(static_cast<size_t>(std::min(piece, elements) * size));
    for (int64_t first = 0; first < elements; first += piece) {
      const auto part = std::span(out_).first(static_cast<size_t>(std::min(piece, elements - first) * size));
      TEMPER_RETURN_IF_ERROR(job.from.ReadElementsAs(first, job.type.dtype, part, staging_));
      TEMPER_RETURN_IF_ERROR(writer.Append(job.name, part));
    }
    return OkStatus();
  }

  // A [r, in] and B [rows, r]. A stack's adapter is read once for the matrices that follow each other.
  Status ReadAdapter(const Merge& merge, std::vector<float>* a, std::vector<float>* b) {
    const LoraModule& m = *merge.module;
    auto& [all_a, all_b] = stacks_[m.path];
    if (all_a.empty()) {
      all_a.resize(static_cast<size_t>(m.ranks() * m.in));
      all_b.resize(static_cast<size_t>(m.out * m.ranks()));
      TEMPER_RETURN_IF_ERROR(adapter_->Read(LoraAName(m.stored_path()), all_a));
      TEMPER_RETURN_IF_ERROR(adapter_->Read(LoraBName(m.stored_path()), all_b));
    }
    if (m.matrices == 0) {
      *a = std::move(all_a);
      *b = std::move(all_b);
      stacks_.erase(m.path);
      return OkStatus();
    }
    a->assign(all_a.begin() + merge.matrix * m.r * m.in, all_a.begin() + (merge.matrix + 1) * m.r * m.in);
    b->clear();
    for (int64_t row = merge.first; row < merge.first + merge.rows; ++row) {
      for (int64_t k = 0; k < m.r; ++k) {
        b->push_back(all_b[static_cast<size_t>(row * m.ranks() + k * m.matrices + merge.matrix)]);
      }
    }
    // Tensors come by name, so the stacks of one module are read in turn.
    constexpr size_t kStacksAtOnce = 2;
    for (auto it = stacks_.begin(); stacks_.size() > kStacksAtOnce;) {
      it = it->first == m.path ? std::next(it) : stacks_.erase(it);
    }
    return OkStatus();
  }

  Status WriteMerged(ShardedSafetensorsWriter& writer, const ExportJob& job) {
    const LoraModule& m = *job.adapter.module;
    std::vector<float> a, b;
    TEMPER_RETURN_IF_ERROR(ReadAdapter(job.adapter, &a, &b));
    if (m.transposed) {  // W^T + scale * A^T B^T: the same sums
      std::swap(a, b);
      a = Turned(a, m.out, m.r);
      b = Turned(b, m.r, m.in);
    }
    const int64_t all = job.type.shape[0], columns = job.type.shape[1];
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / 4 / std::max<int64_t>(1, columns));  // rows
    const int64_t size = SizeOf(job.type.dtype);
    std::vector<float> w(static_cast<size_t>(std::min(piece, all) * columns));
    out_.resize(w.size() * static_cast<size_t>(size));
    for (int64_t row = 0; row < all; row += piece) {
      const int64_t rows = std::min(piece, all - row), elements = rows * columns;
      const std::span<float> part = std::span(w).first(static_cast<size_t>(elements));
      TEMPER_RETURN_IF_ERROR(
          job.from.ReadElementsAs(row * columns, DType::kF32, std::as_writable_bytes(part), staging_));
      MergeRows(w.data(), rows, columns, b.data() + row * m.r, a.data(), m.r, static_cast<float>(m.scale));
      const auto bad = std::find_if(part.begin(), part.end(), [](float x) { return !std::isfinite(x); });
      if (bad != part.end()) {
        return Numerical(
            fmt::format("merging the adapter {} gives {} in {} at row {}: the adapter or the model holds "
                        "numbers that are not finite",
                        spec_.source.adapter_folder, *bad, job.name, row + (bad - part.begin()) / columns));
      }
      const auto bytes = std::span(out_).first(static_cast<size_t>(elements * size));
      Convert(DType::kF32, std::as_bytes(part).data(), job.type.dtype, bytes.data(), elements);
      TEMPER_RETURN_IF_ERROR(writer.Append(job.name, bytes));
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

  // The base's text itself unless something in it changes.
  std::string ExportedConfig() {
    bool changed = false;
    if (spec_.dtype) {
      const char* key = config_.contains("dtype") ? "dtype" : "torch_dtype";
      const std::string name = TorchName(*spec_.dtype);
      changed = !config_.contains(key) || config_[key] != name;
      if (changed) config_[key] = name;
    }
    // What was quantised is exported in the type that it was quantised from.
    const auto& entries = base_->entries();
    if (std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.nf4 != nullptr; })) {
      changed = config_.erase("quantization_config") > 0 || changed;
    }
    if (untied_) {
      for (const std::string& key : spec_.tied_keys) config_[OrderedJson::json_pointer(key)] = false;
      changed = true;
    }
    return changed ? PrintPythonJson(config_, config_text_) : config_text_;
  }

  Env& env_;
  const ExportSpec& spec_;
  const TransferCallback &progress_, &verifying_;
  std::string config_path_, config_text_;
  OrderedJson config_;
  std::vector<std::string> companions_;
  std::optional<ModelWeights> base_;
  std::optional<AdapterReader> adapter_;
  std::optional<DType> dtype_;  // of all floating tensors; as stored where absent
  bool untied_ = false;
  std::vector<ExportJob> jobs_;
  std::map<std::string, std::pair<std::vector<float>, std::vector<float>>> stacks_;  // A and B, by path
  std::vector<std::byte> out_, staging_ = std::vector<std::byte>(SafetensorsFile::kStagingBytes);
  ExportReport report_;
};

}  // namespace

Result<ExportReport> ExportModel(Env& env, const ExportSpec& spec, const TransferCallback& progress,
                                 const TransferCallback& verifying) {
  return Exporter(env, spec, progress, verifying).Run();
}

}  // namespace temper
