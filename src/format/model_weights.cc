#include "format/model_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "format/checksum.h"
#include "format/gguf/gguf_view.h"
#include "format/json.h"
#include "format/open_quantised.h"
#include "format/open_tensor_file.h"
#include "format/quoted.h"
#include "format/stacked_tensor.h"

namespace temper {
namespace {

// A model of 10^5 tensors has an index of 10 MB.
constexpr Bytes kMaxIndex = MiB(64);
constexpr std::string_view kIndexOfSafetensors = "model.safetensors.index.json", kIndexEnd = ".index.json";

// A shard must be a plain file name: an index from elsewhere must not make Temper read /etc or the folder's neighbours.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// tensor -> shard, as the index says.
Result<std::map<std::string, std::string>> ReadWeightMap(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxIndex));
  TEMPER_ASSIGN_OR_RETURN(const Json index, ParseJson(text, path));
  const auto it = index.is_object() ? index.find("weight_map") : index.end();
  if (it == index.end() || !it->is_object()) {
    return Corrupt(fmt::format("{} has no object 'weight_map' (tensor name to shard file)", path));
  }
  if (it->empty()) return Corrupt(path + ": 'weight_map' is empty: it names no tensor and no shard");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : it->items()) {
    if (!shard.is_string()) {
      return Corrupt(fmt::format("{}: 'weight_map' should give a file name for tensor {} but gives {}", path,
                                 Quoted(tensor), shard.type_name()));
    }
    if (!IsPlainFileName(shard.get_ref<const std::string&>())) {
      return Corrupt(
          fmt::format("{}: tensor {} is said to be in {}, which is not a plain file name; shards must lie "
                      "beside their index",
                      path, Quoted(tensor), Quoted(shard.get_ref<const std::string&>())));
    }
    weight_map.emplace(tensor, shard.get<std::string>());
  }
  return weight_map;
}

// "'a', 'b' and 7 more".
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(Quoted(names[i]));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
}

// Whether a file, going by its name, may hold a state dict. A run of transformers leaves others in its folder.
bool IsOfTorch(std::string_view name) {
  const auto of = [&](std::initializer_list<std::string_view> ends) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
  };
  const bool state_of_run = name.starts_with("optimizer.") || name.starts_with("scheduler.") ||
                            name.starts_with("scaler.") || name.starts_with("rng_state") || name == "training_args.bin";
  return of({".bin", ".pt", ".pth"}) && !state_of_run;
}

// Why a folder without the wanted weights has none, as far as its files tell.
Status ExplainMissingWeights(Env& env, const std::string& folder, WeightsKind kind) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(folder));
  const bool model = kind == WeightsKind::kModel;
  std::vector<std::string> others;
  bool has_adapter = false, has_model = false;
  for (const std::string& name : names) {
    has_adapter = has_adapter || name.starts_with("adapter_model.");
    has_model = has_model || name == "model.safetensors" || name == "model.safetensors.index.json";
    const bool ours = name.starts_with("adapter_model") != model;
    if (ours && (name.ends_with(".safetensors") || IsOfTorch(name))) others.push_back(name);
  }
  if (!others.empty()) {
    return NotFound(
        fmt::format("{} has neither model.safetensors nor pytorch_model.bin, nor an index of either, but {}. Give the "
                    "path of the file itself if it holds all weights, or download the index",
                    folder, FirstOf(others)));
  }
  if (model && has_adapter) {
    return NotFound(folder + " holds an adapter, not a model's weights; give the base model's folder here");
  }
  if (!model && has_model) {
    return NotFound(folder + " holds a model's weights, not an adapter (adapter_model.safetensors)");
  }
  return NotFound(fmt::format("{} holds no weights: {}", folder,
                              model ? "there is neither model.safetensors nor pytorch_model.bin, nor an index of either"
                                    : "there is neither adapter_model.safetensors nor adapter_model.bin"));
}

}  // namespace

std::string WeightsFileIn(Env& env, const std::string& folder, WeightsKind kind) {
  static constexpr std::string_view kModelFiles[] = {"model.safetensors", kIndexOfSafetensors, "pytorch_model.bin",
                                                     "pytorch_model.bin.index.json", kGgufMapFile};
  static constexpr std::string_view kAdapterFiles[] = {"adapter_model.safetensors", "adapter_model.bin"};
  const bool model = kind == WeightsKind::kModel;
  for (const std::string_view name : model ? std::span<const std::string_view>(kModelFiles) : kAdapterFiles) {
    if (std::string path = JoinPath(folder, name); env.IsFile(path)) return path;
  }
  const auto names = env.List(folder);
  std::string only;
  for (const std::string& name : names.ok() && model ? *names : std::vector<std::string>()) {
    if (name.ends_with(".bin") || !IsOfTorch(name) || !env.IsFile(JoinPath(folder, name))) continue;
    if (!only.empty()) return "";
    only = name;
  }
  return only.empty() ? "" : JoinPath(folder, only);
}

Result<ModelWeights> ModelWeights::Open(Env& env, const std::string& path, WeightsKind kind) {
  ModelWeights weights(path);
  if (!env.IsFolder(path)) {
    const bool is_index = path.ends_with(kIndexEnd);
    TEMPER_RETURN_IF_ERROR(is_index ? weights.OpenShards(env, FolderOf(path), path) : weights.OpenFile(env, path));
  } else {
    const std::string file = WeightsFileIn(env, path, kind);
    if (file.empty()) return ExplainMissingWeights(env, path, kind);
    if (!file.ends_with(kIndexEnd)) {
      if (env.IsFile(JoinPath(path, kIndexOfSafetensors)) && kind == WeightsKind::kModel) {
        weights.notices_.push_back(path + " has model.safetensors and an index: the index is ignored");
      }
      TEMPER_RETURN_IF_ERROR(weights.OpenFile(env, file));
    } else {
      TEMPER_RETURN_IF_ERROR(weights.OpenShards(env, path, file));
    }
  }
  TEMPER_RETURN_IF_ERROR(weights.Collect());
  return weights;
}

Status ModelWeights::OpenFile(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, OpenTensorFile(env, path));
  files_.push_back(std::move(file));
  return OkStatus();
}

Status ModelWeights::OpenShards(Env& env, const std::string& folder, const std::string& index_path) {
  TEMPER_ASSIGN_OR_RETURN(auto weight_map, ReadWeightMap(env, index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!env.IsFile(JoinPath(folder, shard))) missing.push_back(shard);
  }
  if (!missing.empty()) {
    return NotFound(fmt::format("{} lacks {} of the {} shards that its index names: {}; download them", folder,
                                missing.size(), shards.size(), FirstOf(missing)));
  }
  for (const std::string& shard : shards) TEMPER_RETURN_IF_ERROR(OpenFile(env, JoinPath(folder, shard)));
  // What the index lists and no shard has is missed only if the model needs it; transformers reads shards, not lists.
  listed_ = std::move(weight_map);
  return OkStatus();
}

// Tensors that the index does not list are taken too, as transformers does: it loads shards, not lists. Of several
// shards that have a tensor the last counts there, in the order of their names, whatever the index says.
Status ModelWeights::Collect() {
  for (const auto& file : files_) {
    for (const StoredTensor& t : file->tensors()) entries_.push_back({file.get(), &t});
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  std::vector<Entry> counted;
  size_t twice = 0;
  std::string first;
  for (const Entry& e : entries_) {
    if (counted.empty() || counted.back().tensor->name != e.tensor->name) {
      counted.push_back(e);
      continue;
    }
    const std::string before = BaseName(counted.back().file->path()), now = BaseName(e.file->path());
    if (twice++ == 0) {
      const std::string in_index = ListedIn(e.tensor->name);
      first = fmt::format(
          "{} is in {} and {}: the last counts, as in transformers{}", Quoted(e.tensor->name), Quoted(before),
          Quoted(now),
          in_index.empty() || in_index == now ? "" : fmt::format(", though the index says {}", Quoted(in_index)));
    }
    counted.back() = e;
  }
  entries_ = std::move(counted);
  if (twice > 0) {
    notices_.push_back(
        fmt::format("{}: {}{}", path_, first, twice > 1 ? fmt::format(" (as {} tensors more)", twice - 1) : ""));
  }
  return CollectQuantised();
}

std::string ModelWeights::ListedIn(const std::string& name) const {
  const auto it = listed_.find(name);
  return it == listed_.end() ? "" : it->second;
}

// The tensors of each weight in a quantised format become one.
Status ModelWeights::CollectQuantised() {
  const auto find = [this](const std::string& name) {
    const Entry found = Find(name);
    return QuantisedTensor::Part{found.file, found.tensor};
  };
  std::set<const StoredTensor*> parts;
  for (const Entry& e : entries_) {
    TEMPER_ASSIGN_OR_RETURN(auto weight, OpenQuantised({e.file, e.tensor}, find));
    if (weight == nullptr) continue;
    for (const QuantisedTensor::Part& part : weight->parts()) parts.insert(part.tensor);
    quantised_.push_back(std::move(weight));
  }
  if (quantised_.empty()) return OkStatus();
  std::erase_if(entries_, [&](const Entry& e) { return parts.contains(e.tensor); });
  for (const auto& weight : quantised_) {
    entries_.push_back({.file = weight->parts().front().file, .tensor = &weight->whole(), .quantised = weight.get()});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  const auto same = std::adjacent_find(entries_.begin(), entries_.end(),
                                       [](const Entry& a, const Entry& b) { return a.tensor->name == b.tensor->name; });
  if (same == entries_.end()) return OkStatus();
  return Corrupt(
      fmt::format("{}: {} is there twice, quantised and as numbers, or quantised in two ways: get the model again",
                  path_, Quoted(same->tensor->name)));
}

Result<ModelWeights> ModelWeights::OfPieces(Env& env, const std::string& path, const std::vector<std::string>& files,
                                            std::span<const PieceList> tensors) {
  ModelWeights weights(path);
  for (const std::string& file : files) TEMPER_RETURN_IF_ERROR(weights.OpenFile(env, file));
  for (const PieceList& list : tensors) {
    auto t = std::make_unique<InPieces>();
    t->whole = {.name = list.name, .end = list.type.bytes().v};
    for (int d = 0; d < list.type.shape.rank(); ++d) t->whole.dims.push_back(list.type.shape[d]);
    for (const PieceList::Item& item : list.items) {
      const TensorFile& file = *weights.files_[item.file];
      const StoredTensor* stored = file.Find(item.stored_as);
      const Result<TensorType> type = stored ? stored->type() : Result<TensorType>(NotFound(""));
      if (!type.ok() || type->dtype != list.type.dtype || type->shape.rank() != item.begin.rank()) {
        return Corrupt(fmt::format("{} does not hold a piece of {}, {}, as {}", file.path(), Quoted(list.name),
                                   list.type.ToString(), Quoted(item.stored_as)));
      }
      t->whole.dtype = stored->dtype;
      Piece piece{&file, stored, {}};
      for (int d = 0; d < item.begin.rank(); ++d) piece.begin.push_back(item.begin[d]);
      t->pieces.push_back(std::move(piece));
    }
    TEMPER_CHECK(!t->pieces.empty()) << list.name << " has no pieces";
    weights.entries_.push_back({t->pieces.front().file, &t->whole, &t->pieces});
    weights.in_pieces_.push_back(std::move(t));
  }
  std::sort(weights.entries_.begin(), weights.entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  return weights;
}

Status ModelWeights::StackMatrices(std::span<const FileTensor> tensors) {
  const auto is_here = [&](const std::string& name) { return Find(name).tensor != nullptr; };
  std::vector<std::unique_ptr<InPieces>> stacks;
  std::vector<std::unique_ptr<StackedTensor>> of_quantised;
  std::set<std::string, std::less<>> hidden;
  for (const FileTensor& tensor : tensors) {
    std::vector<std::string> names = tensor.aliases;
    names.insert(names.begin(), tensor.name);
    if (tensor.matrices_as.empty() || std::any_of(names.begin(), names.end(), is_here)) continue;
    const auto matrix = [&](const std::string& stack, int64_t i, const FileTensor::Segment& segment) {
      return fmt::format("{}.{}.{}", stack.substr(0, stack.rfind('.')), i, segment.name);
    };
    const auto has_some = [&](const std::string& stack) {
      for (int64_t i = 0; i < tensor.shape[0]; ++i) {
        for (const auto& segment : tensor.matrices_as) {
          if (is_here(matrix(stack, i, segment))) return true;
        }
      }
      return false;
    };
    const auto name = std::find_if(names.begin(), names.end(), has_some);
    if (name == names.end()) continue;
    auto stack = std::make_unique<InPieces>();
    std::vector<const QuantisedTensor*> quantised;  // the pieces, if the first is
    stack->whole.name = *name;
    for (int d = 0; d < 3; ++d) stack->whole.dims.push_back(tensor.shape[d]);
    for (int64_t i = 0; i < tensor.shape[0]; ++i) {
      int64_t row = 0;
      for (const auto& segment : tensor.matrices_as) {
        const std::string piece = matrix(*name, i, segment);
        const Entry found = Find(piece);
        const StoredTensor* const t = found.tensor;
        if (t == nullptr) {
          return Corrupt(
              fmt::format("{}: tensor {} is missing, and those of other experts are there: download the model "
                          "again",
                          path_, Quoted(piece)));
        }
        const bool first = i + row == 0;
        if (found.quantised != nullptr && (first || !quantised.empty())) quantised.push_back(found.quantised);
        const bool as_others = found.quantised == nullptr
                                   ? quantised.empty()
                                   : !quantised.empty() && found.quantised->format() == quantised.front()->format();
        if (found.pieces != nullptr || !as_others || (!first && t->dtype != stack->whole.dtype)) {
          return Unsupported(
              fmt::format("{}: tensor {} is {}, and those of other experts are not: use the original "
                          "weights",
                          found.file->path(), Quoted(piece), t->ToString()));
        }
        if (t->dims != std::vector<int64_t>{segment.rows, tensor.shape[2]}) {
          return Corrupt(fmt::format("{}: tensor {} is {}, should be [{}, {}], as config.json says", found.file->path(),
                                     Quoted(piece), t->ToString(), segment.rows, tensor.shape[2]));
        }
        stack->whole.dtype = t->dtype;
        stack->matrices.push_back(std::make_unique<StoredTensor>(*t));
        stack->matrices.back()->dims.insert(stack->matrices.back()->dims.begin(), 1);
        stack->pieces.push_back({found.file, stack->matrices.back().get(), {i, row, 0}});
        stack->whole.end += t->bytes().v;
        row += t->dims[0];
        hidden.insert(piece);
      }
    }
    if (quantised.empty()) {
      stacks.push_back(std::move(stack));
    } else {
      of_quantised.push_back(std::make_unique<StackedTensor>(*name, stack->whole.dims, std::move(quantised)));
    }
  }
  std::erase_if(entries_, [&](const Entry& e) { return hidden.contains(e.tensor->name); });
  for (auto& stack : of_quantised) {
    entries_.push_back({.file = stack->parts().front().file, .tensor = &stack->whole(), .quantised = stack.get()});
    quantised_.push_back(std::move(stack));
  }
  for (auto& stack : stacks) {
    entries_.push_back({.file = stack->pieces.front().file,
                        .tensor = &stack->whole,
                        .pieces = &stack->pieces,
                        .pieces_in_order = true});
    in_pieces_.push_back(std::move(stack));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  return OkStatus();
}

Status ModelWeights::Entry::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out,
                                           std::span<std::byte> staging) const {
  if (quantised != nullptr) return quantised->ReadElementsAs(first, target, out);
  if (pieces == nullptr) return file->ReadElementsAs(tensor->name, first, target, out, staging);
  const int64_t size = SizeOf(target), end = first + static_cast<int64_t>(out.size()) / size;
  const std::vector<int64_t>& dims = tensor->dims;
  // A stack has thousands of pieces: begin at the first that reaches element `first`.
  auto from_piece = pieces->begin();
  if (pieces_in_order && tensor->elements() > 0) {
    const int64_t row = first / (tensor->elements() / dims[0]);
    from_piece = std::partition_point(pieces->begin(), pieces->end(),
                                      [&](const Piece& p) { return p.begin[0] + p.stored->dims[0] <= row; });
  }
  for (auto it = from_piece; it != pieces->end(); ++it) {
    const Piece& p = *it;
    if (pieces_in_order && p.begin[0] * (tensor->elements() / dims[0]) >= end) break;
    // Both are row-major from dim `solid` on, where the piece has all of every further dim: a run of that many elements
    // of the piece is a run of the whole.
    const std::vector<int64_t>& own = p.stored->dims;
    if (p.stored->elements() == 0) continue;
    size_t solid = dims.size();
    int64_t inner = 1;  // elements of the whole in one index of dim `solid` - 1
    while (solid > 0 && own[solid - 1] == dims[solid - 1]) inner *= dims[--solid];
    const int64_t run = solid == 0 ? inner : own[solid - 1] * inner;
    // Runs come in the order of the whole: those of outermost indices before `first` are passed over at once. (Below
    // two dims the piece is one run.)
    const int64_t outer = solid < 2 ? 0 : first / (tensor->elements() / dims[0]) - p.begin[0];
    const int64_t begin = outer <= 0 ? 0 : outer * (p.stored->elements() / own[0]);
    for (int64_t at = begin; at < p.stored->elements(); at += run) {
      // Where the run lies in the whole: the indices of its first element, innermost first.
      int64_t place = 0, stride = inner, rest = at / std::max<int64_t>(inner, 1);
      for (size_t d = solid; d-- > 0;) {
        place += (p.begin[d] + rest % own[d]) * stride;
        rest /= own[d];
        stride *= dims[d];
      }
      if (place >= end) break;
      const int64_t from = std::max(place, first), to = std::min(place + run, end);
      if (from >= to) continue;
      TEMPER_RETURN_IF_ERROR(p.file->ReadElementsAs(
          p.stored->name, at + from - place, target,
          out.subspan(static_cast<size_t>((from - first) * size), static_cast<size_t>((to - from) * size)), staging));
    }
  }
  return OkStatus();
}

Bytes ModelWeights::bytes() const {
  Bytes sum;
  for (const Entry& e : entries_) sum += e.tensor->bytes();
  return sum;
}

ModelWeights::Entry ModelWeights::Find(std::string_view name) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, std::string_view n) { return e.tensor->name < n; });
  return it != entries_.end() && it->tensor->name == name ? *it : Entry{};
}

Result<ModelWeights::Entry> ModelWeights::Require(std::string_view name) const {
  const Entry e = Find(name);
  if (e.tensor) return e;
  return NotFound(fmt::format("{} has no tensor {} among its {}", path_, Quoted(name), entries_.size()));
}

Result<std::string> ModelWeights::Digest() const {
  // Each sample is a read of the disk, some milliseconds on a bad one.
  constexpr size_t kSamples = 64;
  constexpr int64_t kSampleElements = 256;
  Checksum sum;
  const auto add = [&sum](std::string_view text) { sum.Update(std::as_bytes(std::span(text.data(), text.size()))); };
  const size_t every = (entries_.size() + kSamples - 1) / kSamples;
  std::vector<std::byte> sample;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const StoredTensor& tensor = *entries_[i].tensor;
    add(fmt::format("{} {}\n", tensor.name, tensor.ToString()));
    const Result<TensorType> type = tensor.type();
    const int64_t elements = std::min(tensor.elements(), kSampleElements);
    if (i % every != 0 || elements == 0 || !type.ok() || type->dtype == DType::kU8) continue;
    sample.resize(static_cast<size_t>(elements * SizeOf(type->dtype)));
    TEMPER_RETURN_IF_ERROR(entries_[i].ReadElementsAs(0, type->dtype, sample));
    sum.Update(sample);
  }
  return sum.Hex();
}

std::string ModelWeights::Metadata(const std::string& key) const {
  for (const auto& file : files_) {
    if (const auto it = file->metadata().find(key); it != file->metadata().end()) return it->second;
  }
  return "";
}

}  // namespace temper
