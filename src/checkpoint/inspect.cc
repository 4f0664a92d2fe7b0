#include "checkpoint/inspect.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/log.h"
#include "base/quantity.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/training_state.h"
#include "checkpoint/weight_checksums.h"
#include "format/json.h"
#include "format/model_weights.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// Names without the characters that a terminal obeys.
std::string Shown(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  return plain && name.size() <= 120 ? name : Quoted(name);
}

// A tensor's name with its numbers replaced: what tensors of all blocks have in common.
std::string PatternOf(const std::string& name) {
  std::string pattern;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool starts = i == 0 || name[i - 1] == '.';
    size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (starts && end > i && (end == name.size() || name[end] == '.')) {
      pattern += '*';
      i = end - 1;
    } else {
      pattern += name[i];
    }
  }
  return pattern;
}

struct Row {
  std::string name, type;
  int64_t elements = 0;
  Bytes bytes;
  std::vector<std::string> slices = {};  // of a tensor in several
};

// "[16, 160] at [16, 0] in state-00001-of-00002.safetensors"
std::vector<std::string> SlicesOf(const Manifest::Tensor& t) {
  std::vector<std::string> slices;
  if (t.slices.size() == 1) return slices;
  for (const Manifest::Slice& s : t.slices) {
    slices.push_back(fmt::format("{} at {} in {}", s.shape.ToString(), s.begin.ToString(), Shown(s.file)));
  }
  return slices;
}

class Inspector {
 public:
  Inspector(Env& env, const InspectOptions& options, const std::function<void(std::string_view)>& print)
      : env_(env), options_(options), print_(print) {}

  Status Run(const std::string& path) {
    const Status found = Find(path);
    if (options_.json && (found.ok() || !items_.empty())) {
      OrderedJson whole = {{"path", path}, {"valid", found.ok()}, {"items", items_}};
      if (!found.ok()) whole["error"] = found.message();
      print_(DumpJson(whole, 2, /*ascii=*/true));
    }
    return found;
  }

 private:
  Status Find(const std::string& path) {
    if (env_.IsFile(path)) {
      TEMPER_ASSIGN_OR_RETURN(const ModelWeights file, ModelWeights::Open(env_, path, WeightsKind::kModel));
      const std::string_view kind = file.files().front()->kind();
      Print("{}: {} file", path, kind);
      Add({{"kind", kind}, {"path", path}});
      PrintWeights(file);
      return OkStatus();
    }
    if (!env_.IsFolder(path)) return NotFound(path + ": there is no such file or folder");
    if (env_.IsFile(JoinPath(path, kManifestFile))) return Checkpoint(path);
    const bool adapter = env_.IsFile(JoinPath(path, kAdapterConfigFile));
    // Beside an adapter alone config.json names the classes of its head.
    const bool has_weights = !WeightsFileIn(env_, path).empty();
    const bool model = env_.IsFile(JoinPath(path, kModelConfigFile)) && (has_weights || !adapter);
    TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env_, path));
    if (adapter) TEMPER_RETURN_IF_ERROR(Adapter(path));
    if (model) TEMPER_RETURN_IF_ERROR(Model(path));
    if ((adapter || model) && env_.IsFile(JoinPath(path, kChecksumsFile))) {
      TEMPER_RETURN_IF_ERROR(VerifyWeights(env_, path));
      Print("  the weights have the checksums of {}", kChecksumsFile);
    }
    // On a screen the newest, a line each; all are checked.
    constexpr size_t kShown = 8;
    const bool brief = !Full();
    if (brief && checkpoints.size() > kShown) {
      Print("{} checkpoints; the last {}:", checkpoints.size(), kShown);
    }
    for (size_t i = 0; i < checkpoints.size(); ++i) {
      silent_ = brief && i + kShown < checkpoints.size();
      TEMPER_RETURN_IF_ERROR(Checkpoint(checkpoints[i].path, brief));
    }
    silent_ = false;
    if (adapter || model || !checkpoints.empty()) return OkStatus();
    return NotFound(
        fmt::format("{} holds nothing that Temper knows: looked for {} (a model), {} (an adapter), {} (a "
                    "checkpoint) and checkpoint-<step> folders",
                    path, kModelConfigFile, kAdapterConfigFile, kManifestFile));
  }

  bool Full() const { return options_.all || options_.list_tensors || options_.json; }

  template <class... Args>
  void Print(fmt::format_string<Args...> format, Args&&... args) {
    if (!options_.json && !silent_) print_(fmt::format(format, std::forward<Args>(args)...));
  }

  // One more model, adapter, checkpoint or file, for JSON.
  void Add(OrderedJson item) { items_.push_back(std::move(item)); }

  // All rows, or one line for tensors whose names differ in numbers only; then totals by type.
  void PrintTensors(const std::vector<Row>& rows, bool totals_only = false) {
    struct Group {
      int64_t count = 0;
      Bytes bytes;
      std::set<std::string> types;
      std::string first;
    };
    std::map<std::string, Group> groups;
    std::map<std::string, Group> by_dtype;
    int64_t elements = 0;
    Bytes bytes{};
    for (const Row& r : rows) {
      if (options_.json) {
        items_.back()["tensors"].push_back({{"name", r.name}, {"type", r.type}, {"bytes", r.bytes.v}});
        for (const std::string& slice : r.slices) items_.back()["tensors"].back()["slices"].push_back(slice);
      } else if (options_.list_tensors) {
        Print("  {}  {}  {}", Shown(r.name), r.type, ToString(r.bytes));
        for (const std::string& slice : r.slices) Print("    {}", slice);
      }
      for (Group* g : {&groups[PatternOf(r.name)], &by_dtype[r.type.substr(0, r.type.find('['))]}) {
        ++g->count;
        g->bytes += r.bytes;
        g->types.insert(r.type);
        if (g->first.empty()) g->first = r.name;
      }
      elements += r.elements;
      bytes += r.bytes;
    }
    if (!options_.list_tensors && !totals_only) {
      // On a screen the largest.
      constexpr size_t kShown = 12;
      std::vector<std::pair<int64_t, std::string>> sizes;
      for (const auto& [pattern, g] : groups) sizes.emplace_back(-g.bytes.v, pattern);
      std::sort(sizes.begin(), sizes.end());
      const bool cut = !Full() && sizes.size() > kShown;
      size_t left_out = 0;
      Bytes left_out_bytes{};
      for (const auto& [pattern, g] : groups) {
        if (cut && std::pair(-g.bytes.v, pattern) >= sizes[kShown]) {
          ++left_out;
          left_out_bytes += g.bytes;
          continue;
        }
        const std::string type = g.types.size() == 1 ? *g.types.begin() : fmt::format("{} shapes", g.types.size());
        if (g.count == 1) {
          Print("  {}  {}  {}", Shown(g.first), type, ToString(g.bytes));
        } else {
          Print("  {}  {} x {}  {}", Shown(pattern), g.count, type, ToString(g.bytes));
        }
      }
      if (left_out > 0) {
        Print("  {}, {}: --all lists them", Counted(static_cast<int64_t>(left_out), "more kind"),
              ToString(left_out_bytes));
      }
    }
    std::string dtypes;
    for (const auto& [dtype, g] : by_dtype)
      dtypes += fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", g.count, dtype);
    Print("  {} ({}), {} elements, {}", Counted(static_cast<int64_t>(rows.size()), "tensor"), dtypes, elements,
          ToString(bytes));
    if (options_.json) {
      items_.back()["elements"] = elements;
      items_.back()["bytes"] = bytes.v;
    }
  }

  Status Weights(const std::string& path, WeightsKind kind) {
    TEMPER_ASSIGN_OR_RETURN(const ModelWeights weights, ModelWeights::Open(env_, path, kind));
    PrintWeights(weights);
    return OkStatus();
  }

  void PrintWeights(const ModelWeights& weights) {
    std::vector<Row> rows;
    for (const ModelWeights::Entry& e : weights.entries()) {
      std::string type = e.tensor->ToString();
      Bytes bytes = e.tensor->bytes();
      if (e.quantised != nullptr) {  // as it is stored
        type = std::string(RuleOf(e.quantised->format()).title) + type.substr(type.find('['));
        bytes = e.quantised->bytes();
      }
      rows.push_back({e.tensor->name, std::move(type), e.tensor->elements(), bytes});
    }
    for (const std::string& notice : weights.notices()) LogWarning(notice);
    if (weights.files().size() > 1) Print("  {} shards", weights.files().size());
    PrintTensors(rows);
  }

  Status Model(const std::string& path) {
    const std::string config_path = JoinPath(path, kModelConfigFile);
    TEMPER_ASSIGN_OR_RETURN(const Json config, ReadPythonJsonFile(env_, config_path));
    if (!config.is_object()) return Corrupt(config_path + ": should be a JSON object");
    std::string architecture = "unknown architecture";
    if (const auto it = config.find("architectures"); it != config.end() && it->is_array() && !it->empty()) {
      if (it->front().is_string()) architecture = Shown(it->front().get<std::string>());
    }
    Print("{}: model, {}", path, architecture);
    Add({{"kind", "model"}, {"path", path}, {"architecture", architecture}});
    return Weights(path, WeightsKind::kModel);
  }

  // Of a module that modules_to_save names, or of a head that stays tied to one.
  static bool IsSaved(const std::string& tensor, const LoraConfig& config) {
    const std::string module = tensor.substr(0, tensor.rfind('.'));
    const std::vector<std::string> names = config.saved_names();
    const bool named =
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return module.ends_with(name); });
    return named || (config.ensure_weight_tying && !names.empty() && tensor.find(".lora_") == std::string::npos);
  }

  // Without the base model it can only be seen whether A and B belong together.
  Status CheckPairs(const ModelWeights& weights, const LoraConfig& config) {
    constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight", kMagnitudes = ".lora_magnitude_vector";
    int64_t modules = 0, saved = 0, rows = 0;
    for (const ModelWeights::Entry& e : weights.entries()) {
      const std::string& name = e.tensor->name;
      const bool is_a = name.ends_with(kA);
      if (!is_a && !name.ends_with(kB)) {
        if (name.ends_with(".base_layer.weight") || name.ends_with(".base_layer.bias")) continue;
        if (config.use_dora && name.ends_with(kMagnitudes)) continue;
        if (!config.trainable_token_indices.empty() && name.ends_with(".token_adapter.trainable_tokens_delta")) {
          rows += e.tensor->dims.empty() ? 0 : e.tensor->dims[0];
          continue;
        }
        if (IsSaved(name, config)) {
          ++saved;
          continue;
        }
        return Unsupported(
            fmt::format("{}: tensor {} does not belong to a LoRA adapter", weights.path(), Quoted(name)));
      }
      const std::string other = name.substr(0, name.size() - kA.size()) + std::string(is_a ? kB : kA);
      const ModelWeights::Entry twin = weights.Find(other);
      if (!twin.tensor)
        return Corrupt(fmt::format("{} has {} but lacks {}", weights.path(), Quoted(name), Quoted(other)));
      if (!is_a) continue;
      const std::string magnitudes = name.substr(0, name.size() - kA.size()) + std::string(kMagnitudes);
      if (config.use_dora && !weights.Find(magnitudes).tensor) {
        return Corrupt(fmt::format("{} has {} but lacks {}", weights.path(), Quoted(name), Quoted(magnitudes)));
      }
      const auto &a = e.tensor->dims, &b = twin.tensor->dims;
      if (a.size() != 2 || b.size() != 2 || a[0] != b[1]) {
        return Corrupt(fmt::format("{}: {} is {} but {} is {}; A should be [r, in] and B [out, r]", weights.path(),
                                   Quoted(name), e.tensor->ToString(), Quoted(other), twin.tensor->ToString()));
      }
      if (config.rank_pattern.empty() && a[0] != config.r) {
        return Corrupt(fmt::format("{}: {} is {}, but {} says r {}", weights.path(), Quoted(name), e.tensor->ToString(),
                                   kAdapterConfigFile, config.r));
      }
      ++modules;
    }
    if (modules == 0) return Corrupt(weights.path() + " has no LoRA tensors");
    Print("  {} adapted modules", modules);
    if (rows > 0) Print("  {} of tables of words trained beside them", Counted(rows, "row"));
    if (saved > 0) Print("  {} of modules trained in full beside them", Counted(saved, "tensor"));
    return OkStatus();
  }

  Status Adapter(const std::string& path) {
    TEMPER_ASSIGN_OR_RETURN(const LoraConfig config, ReadLoraConfig(env_, JoinPath(path, kAdapterConfigFile)));
    Print("{}: LoRA adapter, r {}, alpha {}{}{}, base {}", path, config.r, config.alpha,
          config.use_rslora ? ", rank-stabilised" : "", config.use_dora ? ", with magnitudes (DoRA)" : "",
          Shown(config.base_model));
    Add({{"kind", "adapter"}, {"path", path}, {"r", config.r}, {"alpha", config.alpha}, {"base", config.base_model}});
    TEMPER_ASSIGN_OR_RETURN(const ModelWeights weights, ModelWeights::Open(env_, path, WeightsKind::kAdapter));
    TEMPER_RETURN_IF_ERROR(CheckPairs(weights, config));
    return Weights(path, WeightsKind::kAdapter);
  }

  // `brief`: in a few lines.
  Status Checkpoint(const std::string& path, bool brief = false) {
    TEMPER_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(env_, path));
    const Manifest& m = reader.manifest();
    Print("{}: {} checkpoint at step {} of {}, optimizer {}", path, ToString(m.kind), m.state.step, m.state.total_steps,
          Shown(m.optimizer));
    Print("  epoch {}, next row {}, {} tokens, seed {}{}", m.state.sampler.epoch, m.state.sampler.next_row,
          m.state.tokens, m.state.sampler.seed,
          m.state.eval_loss ? fmt::format(", eval_loss {}", *m.state.eval_loss) : "");
    Add({{"kind", "checkpoint"},
         {"path", path},
         {"of", ToString(m.kind)},
         {"step", m.state.step},
         {"total_steps", m.state.total_steps},
         {"tokens", m.state.tokens},
         {"optimizer", m.optimizer},
         {"program", m.identity.program_hash},
         {"environment", m.identity.environment}});
    if (m.state.eval_loss) items_.back()["eval_loss"] = *m.state.eval_loss;
    if (!brief)
      Print("  program {}, environment {}", Shown(m.identity.program_hash),
            DumpJson(m.identity.environment, -1, /*ascii=*/true));
    std::vector<Row> rows;
    size_t sliced = 0, most = 1;
    for (const Manifest::Tensor& t : m.tensors) {
      rows.push_back({t.name, t.type.ToString(), t.type.shape.elements(), t.type.bytes(), SlicesOf(t)});
      sliced += t.slices.size() > 1;
      std::set<std::string_view> files;
      for (const Manifest::Slice& slice : t.slices) files.insert(slice.file);
      most = std::max(most, files.size());
    }
    PrintTensors(rows, brief);
    if (sliced > 0 && !brief) {
      Print("  {} of {} tensors are stored in slices, from up to {} ranks{}", sliced, rows.size(), most,
            options_.list_tensors ? "" : "; --tensors lists them");
    }
    const bool silent = std::exchange(silent_, silent_ || brief);
    const Status adapter = m.kind == CheckpointKind::kLora ? Adapter(path) : OkStatus();
    silent_ = silent;
    TEMPER_RETURN_IF_ERROR(adapter);
    for (const std::string& name : reader.Names()) TEMPER_RETURN_IF_ERROR(reader.VerifyTensor(name));
    Print("  {} and {} have the checksums of the manifest", Counted(static_cast<int64_t>(m.files.size()), "file"),
          Counted(static_cast<int64_t>(m.tensors.size()), "tensor"));
    return OkStatus();
  }

  Env& env_;
  const InspectOptions& options_;
  const std::function<void(std::string_view)>& print_;
  bool silent_ = false;
  OrderedJson items_ = OrderedJson::array();
};

}  // namespace

Status Inspect(Env& env, const std::string& path, const InspectOptions& options,
               const std::function<void(std::string_view)>& print) {
  return Inspector(env, options, print).Run(path);
}

}  // namespace temper
