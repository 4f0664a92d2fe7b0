#include "model/trainable_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "format/quoted.h"
#include "graph/named_ops.h"
#include "model/lora.h"
#include "model/row_selector.h"

namespace temper {
namespace {

using Readers = TrainedCopy::Readers;

// Of a weight "<module>.weight" or of a part of a fused one, "<module>.weight/q": the tensor's name.
std::string TensorOf(const std::string& weight) {
  return weight.substr(0, weight.rfind('/'));
}
std::string ModuleOf(const std::string& weight) {
  return weight.substr(0, TensorOf(weight).rfind('.'));
}
std::string LastComponent(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

// The names by which PEFT knows that embeddings are meant (EMBEDDING_LAYER_NAMES).
bool IsEmbeddingName(const std::string& name) {
  const std::string last = LastComponent(name);
  return last == "embed_tokens" || last == "lm_head";
}

// Finds the modules with weights that names select. PEFT takes every module whose path ends with a name, and a module
// that holds others with all of them.
class CopySelector {
 public:
  CopySelector(const Model& model, const LoraConfig& config, const std::string& file)
      : model_(model), names_(config.saved_names()), file_(file), head_(model.modules().back()) {
    for (const WeightDeclaration& w : model.weights()) {
      if (w.fixed) continue;
      std::string path = ModuleOf(w.name);
      paths_.insert(path);
      for (size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
        path.resize(dot);
        groups_.insert(path);
      }
    }
    tied_ = ModuleOf(head_.weights.front()) != head_.path;
    const bool embeddings = std::any_of(names_.begin(), names_.end(), IsEmbeddingName);
    stays_tied_ = tied_ && config.ensure_weight_tying && embeddings;
  }

  Result<std::vector<TrainedCopy>> Copies() {
    TEMPER_RETURN_IF_ERROR(CheckNames());
    std::vector<TrainedCopy> copies;
    for (const WeightDeclaration& w : model_.weights()) {
      if (w.fixed) continue;
      const bool is_table = tied_ && w.name == head_.weights.front();
      if (is_table && stays_tied_) {
        TEMPER_RETURN_IF_ERROR(Add(w, w.name, Readers::kAll, &copies));
        const std::string head = CopyName(head_.path + ".weight");
        copies.back().source = copies.back().source.InTensor(CopyName(TensorOf(w.name)), {head});
        continue;
      }
      // Of a head that stays tied PEFT trains the table alone, not its bias.
      if (stays_tied_ && ModuleOf(w.name) == head_.path) continue;
      if (IsNamed(ModuleOf(w.name))) {
        TEMPER_RETURN_IF_ERROR(Add(w, w.name, is_table ? Readers::kEmbedding : Readers::kAll, &copies));
      }
      if (is_table && IsNamed(head_.path)) {
        TEMPER_RETURN_IF_ERROR(Add(w, head_.path + ".weight", Readers::kHead, &copies));
      }
    }
    return copies;
  }

 private:
  static std::string CopyName(const std::string& name) { return std::string(kAdapterPrefix) + name; }
  static bool EndsWithOne(const std::string& path, const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return path.ends_with(name); });
  }
  bool IsNamed(const std::string& path) const { return EndsWithOne(path, names_); }

  Status Refuse(const std::string& name, const std::string& why) const {
    std::set<std::string> known;
    for (const std::string& path : paths_) known.insert(LastComponent(path));
    known.insert(LastComponent(head_.path));
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    const std::string text =
        fmt::format("{}: {} {}; this model has {}", file_.empty() ? "train_modules" : file_ + ": modules_to_save",
                    Quoted(name), why, list);
    return file_.empty() ? InvalidArgument(text) : Unsupported(text + ". " + kMergeWithPeft);
  }

  Status CheckNames() const {
    for (const std::string& name : names_) {
      if (name.empty()) return Refuse(name, "is no name");
      for (const std::string& group : groups_) {
        if (!group.ends_with(name)) continue;
        return Refuse(name, fmt::format("ends the name of {}, which is no module with weights of its own", group));
      }
      const bool known = head_.path.ends_with(name) ||
                         std::any_of(paths_.begin(), paths_.end(), [&](const auto& p) { return p.ends_with(name); });
      // PEFT ignores such names.
      if (!known && file_.empty()) return Refuse(name, "is no module");
    }
    return OkStatus();
  }

  Status Add(const WeightDeclaration& w, const std::string& called, Readers readers,
             std::vector<TrainedCopy>* copies) const {
    if (w.shape.rank() == 3 && w.labels.Has(DimLabel::kExperts)) {
      return Unsupported(fmt::format("{}: {} stacks the matrices of experts, which only method: full trains in full",
                                     file_.empty() ? "train_modules" : file_ + ": modules_to_save", w.name));
    }
    const auto has = [&](const LinearModule& m) {
      return std::find(m.weights.begin(), m.weights.end(), w.name) != m.weights.end();
    };
    const auto& modules = model_.modules();
    const bool product = readers == Readers::kEmbedding ? false : std::any_of(modules.begin(), modules.end(), has);
    copies->push_back({.weight = w.name,
                       .name = CopyName(called),
                       .shape = w.shape,
                       .readers = readers,
                       .in_product = product,
                       .source = w.source.InTensor(CopyName(TensorOf(called))),
                       .tensor = w.source.tensors().front().name});
    return OkStatus();
  }

  const Model& model_;
  const std::vector<std::string> names_;
  const std::string& file_;
  const LinearModule& head_;
  std::set<std::string> paths_, groups_;  // of modules with weights; of those that hold them
  bool tied_ = false, stays_tied_ = false;
};

// An adapter on a module that is trained in full: PEFT leaves out modules by whole components of their names, but
// trains those whose names end so.
Status CheckApart(const TrainableSet& set, const std::string& file) {
  std::map<std::string, std::string> module_of;
  std::set<std::string> parameters;
  for (const LoraModule& m : set.adapters) {
    if (!m.stored.empty()) parameters.insert(m.path);
    for (const LoraModule::Part& part : m.parts) module_of[part.weight] = m.path;
  }
  for (const TrainedCopy& copy : set.copies) {
    const auto it = module_of.find(copy.weight);
    if (it == module_of.end() || copy.readers == Readers::kEmbedding) continue;
    const std::string setting = file.empty() ? "train_modules" : file + ": modules_to_save";
    const bool of_parameter = parameters.contains(it->second);
    return InvalidArgument(
        fmt::format("{} trains {} in full and lora.target_{} gives it an adapter, too: {}", setting, it->second,
                    of_parameter ? "modules or target_parameters" : "modules",
                    of_parameter ? std::string("name target_modules without it")
                                 : fmt::format("list it by its whole name, {}, which leaves it out of the adapter",
                                               LastComponent(it->second))));
  }
  return OkStatus();
}

}  // namespace

int64_t TrainableSet::Parameters(const Model& model) const {
  if (all_weights) return NumParameters(model);
  int64_t n = 0;
  for (const LoraModule& m : adapters) n += m.ranks() * (m.in + m.out) + (m.has_magnitudes ? m.out : 0);
  for (const TrainedCopy& copy : copies) n += copy.shape.elements();
  for (const TrainedRows& r : rows) n += r.shape().elements();
  return n;
}

int64_t TrainableSet::CopiesInProducts() const {
  int64_t n = 0;
  for (const TrainedCopy& copy : copies) n += copy.in_product ? copy.shape.elements() : 0;
  return n;
}

std::vector<std::string> TrainableSet::CopiedModules() const {
  std::vector<std::string> paths;
  for (const TrainedCopy& copy : copies) {
    std::string path = ModuleOf(copy.name.substr(kAdapterPrefix.size()));
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
  }
  return paths;
}

std::vector<StoredWeight> TrainableSet::Stored(const Model& model) const {
  if (all_weights) return model.StoredWeights();
  std::vector<StoredWeight> stored = LoraWeights(adapters);
  for (StoredWeight& copy : StoredCopies(copies)) stored.push_back(std::move(copy));
  for (StoredWeight& own : StoredRows(rows)) stored.push_back(std::move(own));
  return stored;
}

Result<TrainableSet> ResolveTrainable(const Model& model, const LoraConfig& config, const std::string& file) {
  TrainableSet set;
  TEMPER_ASSIGN_OR_RETURN(set.adapters, ResolveLora(model.modules(), config, file));
  TEMPER_ASSIGN_OR_RETURN(set.copies, CopySelector(model, config, file).Copies());
  TEMPER_RETURN_IF_ERROR(CheckApart(set, file));
  TEMPER_ASSIGN_OR_RETURN(set.rows, SelectRows(model, config, set.adapters, set.copies, file));
  return set;
}

std::string NoteOnTies(const LoraConfig& config, const TrainableSet& set) {
  bool apart = false, tied = false;
  for (const TrainedCopy& copy : set.copies) {
    apart = apart || copy.readers != Readers::kAll;
    tied = tied || !copy.source.tensors().front().aliases.empty();
  }
  if (apart) {
    return "train_modules: the model ties its head to the embeddings; what is trained of one does not follow the other "
           "(lora.ensure_weight_tying: true trains one table for both)";
  }
  if (!config.ensure_weight_tying || tied) return "";
  return "lora.ensure_weight_tying has no effect: the model does not tie its head to the embeddings, or train_modules "
         "names neither embed_tokens nor lm_head";
}

void ReadCopies(const std::vector<TrainedCopy>& copies, bool training, Graph* graph) {
  for (const TrainedCopy& copy : copies) {
    const ValueId from = graph->FindSource(copy.weight);
    if (from == kNoValue) continue;  // not in this graph
    const auto reads = [&](const Node& node) {
      return copy.readers == Readers::kAll || (copy.readers == Readers::kEmbedding) == (node.op == Op::kEmbedding);
    };
    const bool has_others = std::any_of(graph->nodes().begin(), graph->nodes().end(), [&](const Node& node) {
      return !reads(node) && std::count(node.inputs.begin(), node.inputs.end(), from) > 0;
    });
    Value own = graph->value(from);
    own.name = copy.name;
    own.trainable = training;
    if (!has_others) {
      graph->value(from) = std::move(own);
      continue;
    }
    const ValueId to = graph->AddValue(std::move(own));
    for (Node& node : graph->nodes()) {
      if (reads(node)) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
    }
  }
}

std::vector<StoredWeight> StoredWeightsAndCopies(const Model& model) {
  std::vector<StoredWeight> stored = model.StoredWeights();
  const size_t own = stored.size();
  const LinearModule& head = model.modules().back();
  for (size_t i = 0; i < own; ++i) {
    StoredWeight copy = stored[i];
    copy.name = std::string(kAdapterPrefix) + copy.name;
    const bool table = stored[i].name == head.weights.front() && ModuleOf(stored[i].name) != head.path;
    stored.push_back(copy);
    if (!table) continue;
    copy.name = std::string(kAdapterPrefix) + head.path + ".weight";
    stored.push_back(std::move(copy));
  }
  return stored;
}

}  // namespace temper
