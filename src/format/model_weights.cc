#include "format/model_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// A model of 10^5 tensors has an index of 10 MB.
constexpr Bytes kMaxIndex = MiB(64);

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

// Why a folder without the wanted weights has none, as far as its files tell.
Status ExplainMissingWeights(Env& env, const std::string& folder, WeightsKind kind) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(folder));
  const bool model = kind == WeightsKind::kModel;
  std::vector<std::string> pickles, others;
  bool has_adapter = false, has_model = false;
  for (const std::string& name : names) {
    has_adapter = has_adapter || name.starts_with("adapter_model.");
    has_model = has_model || name == "model.safetensors" || name == "model.safetensors.index.json";
    const bool pickle = name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
    const bool ours = name.starts_with("adapter_model") != model;
    if (pickle && ours && name != "training_args.bin") pickles.push_back(name);
    if (name.ends_with(".safetensors") && ours) others.push_back(name);
  }
  if (!others.empty()) {
    return NotFound(
        fmt::format("{} has neither model.safetensors nor model.safetensors.index.json, but {}. Give the "
                    "path of the file itself if it holds all weights, or download the index",
                    folder, FirstOf(others)));
  }
  if (!pickles.empty()) {
    return Unsupported(fmt::format(
        "{} has its weights only as PyTorch pickles ({}). Unpickling runs whatever code the file holds, so Temper "
        "refuses it. Download the safetensors version of the {} or, if you trust its origin, convert it with {}",
        folder, FirstOf(pickles), model ? "model" : "adapter",
        model ? "transformers: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, "
                "safe_serialization=True)"
              : "PEFT: AutoPeftModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, "
                "safe_serialization=True)"));
  }
  if (model && has_adapter) {
    return NotFound(folder + " holds an adapter, not a model's weights; give the base model's folder here");
  }
  if (!model && has_model) {
    return NotFound(folder + " holds a model's weights, not an adapter (adapter_model.safetensors)");
  }
  return NotFound(fmt::format("{} holds no weights: {}", folder,
                              model ? "neither model.safetensors nor model.safetensors.index.json is there"
                                    : "adapter_model.safetensors is not there"));
}

}  // namespace

Result<ModelWeights> ModelWeights::Open(Env& env, const std::string& path, WeightsKind kind) {
  ModelWeights weights(path);
  if (!env.IsFolder(path)) {
    const bool is_index = path.ends_with(".safetensors.index.json");
    TEMPER_RETURN_IF_ERROR(is_index ? weights.OpenShards(env, FolderOf(path), path) : weights.OpenFile(env, path));
  } else if (kind == WeightsKind::kAdapter) {
    const std::string file = JoinPath(path, "adapter_model.safetensors");
    if (!env.IsFile(file)) return ExplainMissingWeights(env, path, kind);
    TEMPER_RETURN_IF_ERROR(weights.OpenFile(env, file));
  } else {
    const std::string file = JoinPath(path, "model.safetensors");
    const std::string index = JoinPath(path, "model.safetensors.index.json");
    if (env.IsFile(file)) {
      if (env.IsFile(index))
        LogWarning(fmt::format("{} has model.safetensors and an index: the index is ignored", path));
      TEMPER_RETURN_IF_ERROR(weights.OpenFile(env, file));
    } else if (env.IsFile(index)) {
      TEMPER_RETURN_IF_ERROR(weights.OpenShards(env, path, index));
    } else {
      return ExplainMissingWeights(env, path, kind);
    }
  }
  TEMPER_RETURN_IF_ERROR(weights.Collect());
  return weights;
}

Status ModelWeights::OpenFile(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(env, path));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  return OkStatus();
}

Status ModelWeights::OpenShards(Env& env, const std::string& folder, const std::string& index_path) {
  TEMPER_ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(env, index_path));
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [tensor, shard] : weight_map) shards.emplace(shard, nullptr);
  std::vector<std::string> missing;
  for (const auto& [shard, file] : shards) {
    if (!env.IsFile(JoinPath(folder, shard))) missing.push_back(shard);
  }
  if (!missing.empty()) {
    return NotFound(fmt::format("{} lacks {} of the {} shards that its index names: {}; download them", folder,
                                missing.size(), shards.size(), FirstOf(missing)));
  }
  for (auto& [shard, file] : shards) {
    TEMPER_RETURN_IF_ERROR(OpenFile(env, JoinPath(folder, shard)));
    file = files_.back().get();
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (shards[shard]->Find(tensor)) continue;
    const auto other =
        std::find_if(files_.begin(), files_.end(), [&name = tensor](const auto& f) { return f->Find(name); });
    return Corrupt(
        fmt::format("{} says that tensor {} is in {}, but it is {}; index and shards are of different models "
                    "or versions: download them together",
                    index_path, Quoted(tensor), Quoted(shard),
                    other == files_.end() ? "in no shard" : "in " + Quoted(BaseName((*other)->path()))));
  }
  return OkStatus();
}

// Tensors that the index does not list are taken too, as transformers does: it loads shards, not lists.
Status ModelWeights::Collect() {
  for (const auto& file : files_) {
    for (const StoredTensor& t : file->tensors()) entries_.push_back({file.get(), &t});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  const auto twice = std::adjacent_find(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.tensor->name == b.tensor->name;
  });
  if (twice == entries_.end()) return OkStatus();
  return Corrupt(
      fmt::format("tensor {} is in two shards, {} and {}; which is meant cannot be known: download the model "
                  "again into an empty folder",
                  Quoted(twice->tensor->name), twice->file->path(), (twice + 1)->file->path()));
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

std::string ModelWeights::Metadata(const std::string& key) const {
  for (const auto& file : files_) {
    if (const auto it = file->metadata().find(key); it != file->metadata().end()) return it->second;
  }
  return "";
}

}  // namespace temper
