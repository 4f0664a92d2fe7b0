#include "checkpoint/sliced_weights.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/training_state.h"
#include "format/f16_range.h"
#include "format/safetensors_writer.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

constexpr int64_t kReadPiece = 1 << 20;  // of a tensor that is put together: whole elements of any dtype

// Those tensors of a checkpoint whose names `has` takes.
Result<ModelWeights> OpenSlices(Env& env, const std::string& folder, const CheckpointReader& checkpoint,
                                const std::function<bool(const std::string&)>& has) {
  std::map<std::string, size_t> numbers;
  std::vector<std::string> paths;
  std::vector<ModelWeights::PieceList> tensors;
  for (const Manifest::Tensor& t : checkpoint.manifest().tensors) {
    if (!has(t.name)) continue;
    ModelWeights::PieceList list{t.name, t.type, {}};
    for (const Manifest::Slice& s : t.slices) {
      const auto [number, is_new] = numbers.emplace(s.file, paths.size());
      if (is_new) paths.push_back(JoinPath(folder, s.file));
      list.items.push_back({number->second, s.stored_as, s.begin});
    }
    tensors.push_back(std::move(list));
  }
  return ModelWeights::OfPieces(env, folder, paths, tensors);
}

// `source`: the tensor of `weights` and of the checkpoint's manifest that has what goes under a name.
Result<std::string> Join(Env& env, const CheckpointReader& reader, const ModelWeights& weights, const std::string& path,
                         DType dtype, std::span<const ModelWeights::Entry> others,
                         const std::function<std::string(const std::string&)>& source) {
  std::vector<TensorDeclaration> declared;
  for (const Manifest::Tensor& t : reader.manifest().tensors) {
    if (IsValueName(t.name)) declared.push_back({t.name, {dtype, t.type.shape}});
  }
  std::map<std::string_view, const ModelWeights::Entry*> of_others;
  for (const ModelWeights::Entry& other : others) {
    const auto type = other.tensor->type();
    if (!type.ok()) return type.status().WithContext(other.file->path());
    declared.push_back({other.tensor->name, *type});
    of_others[other.tensor->name] = &other;
  }
  TEMPER_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(env, path, std::move(declared)));
  writer.KeepChecksum();
  std::vector<std::byte> memory(kReadPiece);
  F16Range range;
  for (const StoredTensor& stored : writer.order()) {
    const auto other = of_others.find(stored.name);
    ModelWeights::Entry entry;
    if (other != of_others.end()) {
      entry = *other->second;
    } else {
      // Checksums are of slices, which may lie across each other in the whole: proved first, then read piece by piece.
      const std::string from = source(stored.name);
      TEMPER_RETURN_IF_ERROR(reader.VerifyTensor(from));
      TEMPER_ASSIGN_OR_RETURN(entry, weights.Require(from));
    }
    TEMPER_ASSIGN_OR_RETURN(const TensorType type, stored.type());
    for (int64_t done = 0; done < stored.bytes().v; done += kReadPiece) {
      const auto piece = std::span(memory).first(static_cast<size_t>(std::min(kReadPiece, stored.bytes().v - done)));
      TEMPER_RETURN_IF_ERROR(entry.ReadElementsAs(done / SizeOf(type.dtype), type.dtype, piece));
      range.Note(stored.name, type.dtype, piece);
      TEMPER_RETURN_IF_ERROR(writer.Append(stored.name, piece));
    }
  }
  TEMPER_RETURN_IF_ERROR(writer.Finish());
  if (const std::string warning = range.Warning(path); !warning.empty()) LogWarning(warning);
  return writer.checksum();
}

}  // namespace

Result<ModelWeights> OpenModelWeights(Env& env, const std::string& folder) {
  if (!env.IsFile(JoinPath(folder, kManifestFile)) || !WeightsFileIn(env, folder).empty()) {
    return ModelWeights::Open(env, folder);
  }
  TEMPER_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::Open(env, folder));
  if (checkpoint.manifest().kind != CheckpointKind::kFull) return ModelWeights::Open(env, folder);
  return OpenSlices(env, folder, checkpoint, IsValueName);
}

Result<ModelWeights> OpenModelWeights(Env& env, const std::string& folder, std::span<const FileTensor> tensors) {
  TEMPER_ASSIGN_OR_RETURN(ModelWeights weights, OpenModelWeights(env, folder));
  TEMPER_RETURN_IF_ERROR(weights.StackMatrices(tensors));
  return weights;
}

Result<std::string> JoinWeights(Env& env, const std::string& checkpoint, const std::string& path, DType dtype,
                                std::span<const ModelWeights::Entry> others) {
  TEMPER_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(env, checkpoint));
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights weights, OpenModelWeights(env, checkpoint));
  return Join(env, reader, weights, path, dtype, others, [](const std::string& name) { return name; });
}

Result<std::string> JoinAverages(Env& env, const std::string& checkpoint, const std::string& path, DType dtype,
                                 const std::map<std::string, std::string>& twins,
                                 std::span<const ModelWeights::Entry> others) {
  TEMPER_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(env, checkpoint));
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights all,
                          OpenSlices(env, checkpoint, reader, [](const std::string&) { return true; }));
  // What is not trained, numbers of the model's files, has no average.
  return Join(env, reader, all, path, dtype, others, [&](const std::string& name) {
    const auto twin = twins.find(name);
    std::string average = kAverageState.NameOf(twin == twins.end() ? name : twin->second);
    return reader.manifest().Find(average) == nullptr ? name : average;
  });
}

}  // namespace temper
