#include "run/class_head.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "checkpoint/companion_files.h"
#include "data/tokenizer/load_tokenizer.h"
#include "format/lora_config.h"
#include "format/model_weights.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "format/trained_copy.h"
#include "model/families.h"
#include "objective/objective.h"

namespace temper {
namespace {

// Of the model that config.json describes, under a head of classes.
Result<std::string> ArchitectureWithClasses(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const auto model, ModelFromConfig(config, where));
  const std::string& own = model->facts().architecture;
  const std::string_view with = ClassifierOf(own);
  if (!with.empty()) return std::string(with);
  return Unsupported(fmt::format(
      "{}: Temper knows no class that judges sequences by a {} (docs/howto/classify.md lists those that it knows)",
      where, own));
}

std::optional<int32_t> PadOf(const Json& config) {
  const Json* pad = FindValue(config, "pad_token_id");
  if (pad == nullptr || !pad->is_number_integer()) return {};
  return static_cast<int32_t>(pad->get<int64_t>());
}

// As TRL chooses it: the tokenizer's, or the end token. Tokens as data need no tokenizer.
std::optional<int32_t> PadOfTokenizer(Env& env, const std::string& folder) {
  const auto tokenizer = LoadTokenizer(env, folder);
  if (!tokenizer.ok()) return {};
  return (*tokenizer)->pad() ? (*tokenizer)->pad() : (*tokenizer)->eos();
}

// The classes of an adapter with a head of its own: from its config.json, which Temper writes. PEFT names none: then as
// many as the head has rows, with names from `wanted` if there are as many.
Result<std::optional<ClassNames>> ClassesOfAdapter(Env& env, const std::string& folder, const FindsClasses& wanted) {
  const auto weights = ModelWeights::Open(env, folder, WeightsKind::kAdapter);
  if (!weights.ok()) return std::optional<ClassNames>();
  const auto head = weights->Find(std::string(kAdapterPrefix) + kClassHeadModule + ".weight");
  if (head.tensor == nullptr) return std::optional<ClassNames>();
  const std::string path = JoinPath(folder, kModelConfigFile);
  if (env.IsFile(path)) {
    TEMPER_ASSIGN_OR_RETURN(const Json config, ReadPythonJsonFile(env, path));
    if (HasClasses(config)) {
      TEMPER_ASSIGN_OR_RETURN(ClassNames classes, ReadClasses(config, path));
      return std::optional(std::move(classes));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(const TensorType type, head.tensor->type());
  if (type.shape.rank() != 2) {
    return Corrupt(
        fmt::format("{}: {} is {}, should be a matrix", head.file->path(), head.tensor->name, head.tensor->ToString()));
  }
  TEMPER_ASSIGN_OR_RETURN(ClassNames classes, ReadClasses({{"num_labels", type.shape[0]}}, folder));
  if (!wanted) return std::optional(std::move(classes));
  TEMPER_ASSIGN_OR_RETURN(ClassNames of_data, wanted());
  return std::optional(of_data.size() == classes.size() ? std::move(of_data) : std::move(classes));
}

}  // namespace

Result<std::optional<ClassHead>> FindClassHead(Env& env, const std::string& folder, const std::string& adapter_folder,
                                               const FindsClasses& wanted) {
  const std::string path = JoinPath(folder, kModelConfigFile);
  TEMPER_ASSIGN_OR_RETURN(const Json config, ReadPythonJsonFile(env, path));
  if (!config.is_object()) return std::optional<ClassHead>();  // its reader says so
  if (HasClasses(config)) {
    TEMPER_ASSIGN_OR_RETURN(ClassNames classes, ReadClasses(config, path));
    return std::optional(ClassHead{.classes = std::move(classes), .pad = PadOf(config)});
  }
  std::optional<ClassNames> classes;
  if (!adapter_folder.empty()) {
    TEMPER_ASSIGN_OR_RETURN(classes, ClassesOfAdapter(env, adapter_folder, wanted));
  }
  if (!classes && wanted) {
    TEMPER_ASSIGN_OR_RETURN(classes, wanted());
  }
  if (!classes) return std::optional<ClassHead>();
  ClassHead head{.classes = *std::move(classes), .pad = PadOf(config), .added = true};
  if (!head.pad) head.pad = PadOfTokenizer(env, folder);
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, MiB(64)));
  TEMPER_ASSIGN_OR_RETURN(OrderedJson ordered, ParseOrderedPythonJson(text, path));
  TEMPER_ASSIGN_OR_RETURN(const std::string architecture, ArchitectureWithClasses(config, path));
  WriteClasses(head.classes, architecture, head.pad, &ordered);
  head.config = PrintPythonJson(std::move(ordered), text);
  return std::optional(std::move(head));
}

Result<Json> WithClassHead(const Json& config, const ClassNames& classes, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string architecture, ArchitectureWithClasses(config, where));
  OrderedJson ordered(config);
  WriteClasses(classes, architecture, /*pad=*/{}, &ordered);
  return Json(ordered);
}

}  // namespace temper
