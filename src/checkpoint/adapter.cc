#include "checkpoint/adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "format/conversion.h"
#include "format/quoted.h"
#include "format/safetensors_writer.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

Status CheckTensor(const ModelWeights& files, const std::string& name, const Shape& shape) {
  const ModelWeights::Entry entry = files.Find(name);
  if (!entry.tensor) {
    return NotFound(
        fmt::format("{} lacks tensor {}: the adapter belongs to another model, or its {} to another adapter",
                    files.path(), name, kAdapterConfigFile));
  }
  TEMPER_ASSIGN_OR_RETURN(const TensorType type, entry.tensor->type());
  if (type.shape != shape) {
    return Corrupt(fmt::format("{}: tensor {} is {} but model and {} make it {}: the adapter was made for another base",
                               files.path(), name, type.shape.ToString(), kAdapterConfigFile, shape.ToString()));
  }
  if (!IsFloating(type.dtype)) {
    return Unsupported(fmt::format("{}: tensor {} is {}; adapters are read from floating types", files.path(), name,
                                   ToString(type.dtype)));
  }
  return OkStatus();
}

// PEFT writes a table that stays tied to the head under both names. It loads both into one tensor.
Status CheckTwin(const ModelWeights& files, const std::string& name, const std::string& twin) {
  const ModelWeights::Entry other = files.Find(twin);
  if (!other.tensor) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const bool same, HaveSameElements(files.Find(name), other));
  if (same) return OkStatus();
  return Corrupt(fmt::format("{}: tensors {} and {} differ, but {} ties them (ensure_weight_tying)", files.path(), name,
                             twin, kAdapterConfigFile));
}

// The name that the file has for a module: today's, or that of an earlier version of transformers.
std::string PathIn(const ModelWeights& files, const LoraModule& m) {
  for (const std::string& older : m.older_paths) {
    if (!files.Find(LoraAName(m.path)).tensor && files.Find(LoraAName(older)).tensor) return older;
  }
  return m.stored_path();
}

}  // namespace

Status WriteAdapter(Env& env, const std::string& folder, const LoraConfig& config, std::span<const NamedView> tensors) {
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(folder));
  // An earlier adapter's configuration must not meet the new weights: without one the folder is no adapter.
  const std::string config_path = JoinPath(folder, kAdapterConfigFile);
  if (env.IsFile(config_path)) TEMPER_RETURN_IF_ERROR(env.RemoveFile(config_path));
  std::vector<TensorDeclaration> declared;
  for (const NamedView& t : tensors) declared.push_back({t.name, t.view.type});
  TEMPER_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(env, JoinPath(folder, kAdapterWeightsFile), std::move(declared)));
  for (const StoredTensor& stored : writer.order()) {
    const auto it =
        std::find_if(tensors.begin(), tensors.end(), [&](const NamedView& t) { return t.name == stored.name; });
    TEMPER_RETURN_IF_ERROR(writer.Append(stored.name, it->view.raw()));
  }
  TEMPER_RETURN_IF_ERROR(writer.Finish());
  return WriteTextFileAtomically(env, config_path, FormatLoraConfig(config));
}

Result<AdapterReader> AdapterReader::Open(Env& env, const std::string& folder, std::span<const LoraModule> modules,
                                          std::span<const TrainedCopy> copies, std::span<const TrainedRows> rows) {
  TEMPER_ASSIGN_OR_RETURN(ModelWeights files, ModelWeights::Open(env, folder, WeightsKind::kAdapter));
  std::set<std::string, std::less<>> expected;
  std::map<std::string, std::string> stored_as;
  for (const LoraModule& m : modules) {
    const std::string path = PathIn(files, m), a = LoraAName(path), b = LoraBName(path);
    TEMPER_RETURN_IF_ERROR(CheckTensor(files, a, {m.ranks(), m.in}));
    TEMPER_RETURN_IF_ERROR(CheckTensor(files, b, {m.out, m.ranks()}));
    expected.insert(a);
    expected.insert(b);
    if (m.is_head) {
      for (const std::string& frozen : LoraBaseNames(path)) expected.insert(frozen);
    }
    stored_as[LoraAName(m.stored_path())] = a;
    stored_as[LoraBName(m.stored_path())] = b;
    if (!m.has_magnitudes) continue;
    const std::string magnitude = LoraMagnitudeName(path);
    TEMPER_RETURN_IF_ERROR(CheckTensor(files, magnitude, {m.out}));
    expected.insert(magnitude);
    stored_as[LoraMagnitudeName(m.stored_path())] = magnitude;
  }
  std::vector<StoredWeight> whole = StoredCopies(copies);
  for (StoredWeight& own : StoredRows(rows)) whole.push_back(std::move(own));
  for (const StoredWeight& copy : whole) {
    const FileTensor& tensor = copy.source.tensors().front();
    TEMPER_RETURN_IF_ERROR(CheckTensor(files, tensor.name, tensor.shape));
    expected.insert(tensor.name);
    for (const std::string& twin : tensor.aliases) {
      TEMPER_RETURN_IF_ERROR(CheckTwin(files, tensor.name, twin));
      expected.insert(twin);
    }
  }
  for (const ModelWeights::Entry& e : files.entries()) {
    if (expected.contains(e.tensor->name)) continue;
    return Unsupported(
        fmt::format("{} has tensor {}, which belongs to none of the LoRA modules that its {} and the model define; "
                    "ignoring it would change what the adapter computes. {}",
                    files.path(), Quoted(e.tensor->name), kAdapterConfigFile, kMergeWithPeft));
  }
  return AdapterReader(std::move(files), {modules.begin(), modules.end()}, std::move(whole), std::move(stored_as));
}

Status AdapterReader::Load(const BufferLookup& buffer) const {
  TEMPER_RETURN_IF_ERROR(LoadWeights(files_, copies_, buffer));
  std::vector<std::byte> staging(TensorFile::kStagingBytes);
  HostWindow window;
  for (const StoredWeight& weight : LoraWeights(modules_)) {
    for (const DevicePart& part : {buffer(weight.name), buffer(MasterName(weight.name))}) {
      if (!part.exists()) continue;
      for (const WeightSource::FilePart& stored : weight.source.FileParts(part.part)) {
        const auto entry = files_.Find(stored_as_.at(stored.tensor->name));
        TEMPER_RETURN_IF_ERROR(window.Fill({stored.part, *part.stream}, [&](const PartView& piece) {
          return ReadPart(entry, piece, stored.transposed, staging);
        }));
      }
    }
  }
  return OkStatus();
}

Status AdapterReader::ReadRows(const TrainedRows& rows, std::span<float> out) const {
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights::Entry entry, files_.Require(rows.name()));
  TEMPER_CHECK(std::ssize(out) == entry.tensor->elements()) << rows.name();
  return entry.file->ReadAs(entry.tensor->name, DType::kF32, std::as_writable_bytes(out));
}

ModelWeights::Entry AdapterReader::Find(const TrainedCopy& copy) const {
  return files_.Find(copy.source.tensors().front().name);
}

Status AdapterReader::Read(const std::string& name, std::span<float> out) const {
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights::Entry entry, files_.Require(stored_as_.at(name)));
  TEMPER_CHECK(static_cast<int64_t>(out.size()) == entry.tensor->elements()) << name;
  return entry.file->ReadAs(entry.tensor->name, DType::kF32, std::as_writable_bytes(out));
}

}  // namespace temper
