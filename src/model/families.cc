#include "model/families.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/edit_distance.h"
#include "format/class_names.h"
#include "format/quoted.h"
#include "model/nested.h"
#include "model/quantisation_config.h"

namespace temper {

#define TEMPER_FAMILY(architecture, model_type, reader) FamilyReader reader;
#define TEMPER_MULTIMODAL(architecture, model_type, text_type, names)
#include "model/family_list.inc"

namespace {

struct Family {
  std::string_view architecture;  // the class in "architectures"
  std::string_view model_type;    // used if the file names no class
  FamilyReader* read;             // null: a multimodal class
  std::string_view text_type;     // model_type of its text model if text_config does not say
  NestedNames names = NestedNames::kPrefixed;
};

#define TEMPER_FAMILY(architecture, model_type, reader) {#architecture, #model_type, reader, ""},
#define TEMPER_MULTIMODAL(architecture, model_type, text_type, names) \
  {#architecture, #model_type, nullptr, #text_type, NestedNames::names},
constexpr Family kFamilies[] = {
#include "model/family_list.inc"
};

// A class of transformers that is not supported.
struct Missing {
  std::string_view architecture, model_type;
  const char* what;  // it needs
};

#define TEMPER_MISSING(architecture, model_type, what) {#architecture, #model_type, what},
constexpr Missing kMissing[] = {
#include "model/missing_list.inc"
};

std::string TextAt(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_string() ? it->get<std::string>() : "";
}

// The class name in "architectures"; empty where there is none.
std::string ArchitectureOf(const Json& config) {
  const auto list = config.find("architectures");
  const bool named = list != config.end() && list->is_array() && !list->empty() && list->front().is_string();
  return named ? list->front().get<std::string>() : "";
}

bool HasObject(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_object();
}

// The word that a class or a model_type begins with, in small letters: "qwen" of "Qwen2MoeForCausalLM" and of
// "qwen2_moe"; "gptneo" of "GPTNeoXForCausalLM", whose capitals run on.
std::string FirstWord(std::string_view name) {
  std::string word;
  for (size_t i = 0; i < name.size() && std::isalpha(static_cast<unsigned char>(name[i])) != 0; ++i) {
    const bool capital = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    if (capital && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0) break;
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return word;
}

// Whether two names are of relatives, or one is a slip of the other: their first words are the same, one begins with
// the other ("olmoe" and "olmo"), or a letter of a long one differs ("mixtral" and "mistral").
bool AreRelatives(const std::string& a, const std::string& b) {
  constexpr size_t kWord = 3, kLong = 5;
  const size_t shorter = std::min(a.size(), b.size());
  if (shorter < kWord) return false;
  return a.starts_with(b) || b.starts_with(a) || (shorter >= kLong && EditDistance(a, b) <= 1);
}

// Of a class or a model_type that is none of kFamilies.
Status Unknown(const std::string& name, const std::string& where) {
  for (const Missing& missing : kMissing) {
    if (name != missing.architecture && name != missing.model_type) continue;
    return Unsupported(fmt::format(
        "{}: architecture {} is not supported: it needs {} in a form that no supported family has (docs/supported.md)",
        where, Quoted(name), missing.what));
  }
  std::string known;
  const Family* nearest = nullptr;
  size_t least = 0;
  const std::string word = FirstWord(name);
  for (const Family& family : kFamilies) {
    const size_t distance = std::min(EditDistance(name, family.architecture), EditDistance(name, family.model_type));
    const bool relative = AreRelatives(word, FirstWord(family.architecture));
    if (relative && (nearest == nullptr || distance < least)) {
      nearest = &family;
      least = distance;
    }
    if (!known.empty()) known += &family == std::end(kFamilies) - 1 ? " and " : ", ";
    known += family.architecture;
  }
  return Unsupported(fmt::format("{}: architecture {} is not supported{}; supported are {} (docs/supported.md)", where,
                                 Quoted(name),
                                 nearest != nullptr ? fmt::format("; the nearest that is: {}", nearest->architecture)
                                                    : ", nor is a relative of it",
                                 known));
}

const Family* FamilyOfType(std::string_view type) {
  const Family* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                     [&](const Family& family) { return family.model_type == type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

// With the reader of its family, if that reads it at all.
Result<std::unique_ptr<Model>> ReadWith(const Family& family, const Json& config, const std::string& where) {
  const bool by_layer = family.read == ReadGemma4 || family.read == ReadGemma4Unified;
  if (!by_layer && config.contains("per_layer_config") && !config["per_layer_config"].is_null()) {
    return Unsupported(where + ": per_layer_config (sizes that differ by layer) is not supported");
  }
  TEMPER_ASSIGN_OR_RETURN(auto model, family.read(config, where));
  TEMPER_RETURN_IF_ERROR(CheckFormatIsRead(config, model->facts(), where));
  return model;
}

// Fuyu's files may have the sizes of the text model at the top.
Json TextOfFuyu(Json config) {
  for (const char* outer : {"architectures", "model_type"}) config.erase(outer);
  return config;
}

Result<std::unique_ptr<Model>> ReadMultimodal(const Family& family, const Json& config, const std::string& where) {
  const bool nested = HasObject(config, "text_config"), flat = family.architecture == "FuyuForCausalLM";
  if (!nested && !flat) {
    return Corrupt(fmt::format("{}: {} has the sizes of its text model in an object text_config, which is missing",
                               where, family.architecture));
  }
  Json text = nested ? config["text_config"] : TextOfFuyu(config);
  TEMPER_RETURN_IF_ERROR(CheckQuantisation(text, where + ": text_config"));
  TakeQuantisation(config, &text);
  std::string type = TextAt(text, "model_type");
  if (type.empty()) type = family.text_type;
  const std::string inside = where + ": text_config";
  const Family* of_text = FamilyOfType(type);
  if (of_text == nullptr) return Unknown(type, inside);
  if (of_text->read == nullptr) {
    return Unsupported(fmt::format("{}: model_type {} is not that of a text model", inside, Quoted(type)));
  }
  // The outer key decides. Files of transformers 4 may have neither: then it is the text model's own default, as there.
  const auto tied = config.find("tie_word_embeddings");
  if (tied != config.end() && !tied->is_null()) text["tie_word_embeddings"] = *tied;
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, ReadWith(*of_text, text, inside));
  return MakeNested(std::move(model), std::string(family.architecture), family.names);
}

// Families of which transformers (5.24) has a class for sequences, and that class. All end in a linear module `score`
// without bias.
struct Classifier {
  std::string_view architecture, of_sequences;
};
constexpr Classifier kClassifiers[] = {
    {"ArceeForCausalLM", "ArceeForSequenceClassification"},
    {"BioGptForCausalLM", "BioGptForSequenceClassification"},
    {"BloomForCausalLM", "BloomForSequenceClassification"},
    {"CohereCompassForCausalLM", "CohereCompassTextForSequenceClassification"},
    {"DeepseekV2ForCausalLM", "DeepseekV2ForSequenceClassification"},
    {"DeepseekV3ForCausalLM", "DeepseekV3ForSequenceClassification"},
    {"Exaone4ForCausalLM", "Exaone4ForSequenceClassification"},
    {"FalconForCausalLM", "FalconForSequenceClassification"},
    {"GPT2LMHeadModel", "GPT2ForSequenceClassification"},
    {"GPTBigCodeForCausalLM", "GPTBigCodeForSequenceClassification"},
    {"GPTJForCausalLM", "GPTJForSequenceClassification"},
    {"GPTNeoForCausalLM", "GPTNeoForSequenceClassification"},
    {"GPTNeoXForCausalLM", "GPTNeoXForSequenceClassification"},
    {"Gemma2ForCausalLM", "Gemma2ForSequenceClassification"},
    {"Gemma3ForCausalLM", "Gemma3TextForSequenceClassification"},
    {"GemmaForCausalLM", "GemmaForSequenceClassification"},
    {"Glm4ForCausalLM", "Glm4ForSequenceClassification"},
    {"GlmForCausalLM", "GlmForSequenceClassification"},
    {"GptOssForCausalLM", "GptOssForSequenceClassification"},
    {"HeliumForCausalLM", "HeliumForSequenceClassification"},
    {"HunYuanDenseV1ForCausalLM", "HunYuanDenseV1ForSequenceClassification"},
    {"LlamaForCausalLM", "LlamaForSequenceClassification"},
    {"MiniCPM3ForCausalLM", "MiniCPM3ForSequenceClassification"},
    {"Ministral3ForCausalLM", "Ministral3ForSequenceClassification"},
    {"MinistralForCausalLM", "MinistralForSequenceClassification"},
    {"MistralForCausalLM", "MistralForSequenceClassification"},
    {"MixtralForCausalLM", "MixtralForSequenceClassification"},
    {"MptForCausalLM", "MptForSequenceClassification"},
    {"NemotronForCausalLM", "NemotronForSequenceClassification"},
    {"OPTForCausalLM", "OPTForSequenceClassification"},
    {"Olmo2ForCausalLM", "Olmo2ForSequenceClassification"},
    {"Olmo3ForCausalLM", "Olmo3ForSequenceClassification"},
    {"OlmoForCausalLM", "OlmoForSequenceClassification"},
    {"OpenAIGPTLMHeadModel", "OpenAIGPTForSequenceClassification"},
    {"PersimmonForCausalLM", "PersimmonForSequenceClassification"},
    {"Phi3ForCausalLM", "Phi3ForSequenceClassification"},
    {"PhiForCausalLM", "PhiForSequenceClassification"},
    {"Qwen2ForCausalLM", "Qwen2ForSequenceClassification"},
    {"Qwen2MoeForCausalLM", "Qwen2MoeForSequenceClassification"},
    {"Qwen3ForCausalLM", "Qwen3ForSequenceClassification"},
    {"Qwen3MoeForCausalLM", "Qwen3MoeForSequenceClassification"},
    {"Qwen3NextForCausalLM", "Qwen3NextForSequenceClassification"},
    {"Qwen3_5ForCausalLM", "Qwen3_5TextForSequenceClassification"},
    {"SeedOssForCausalLM", "SeedOssForSequenceClassification"},
    {"SmolLM3ForCausalLM", "SmolLM3ForSequenceClassification"},
    {"StableLmForCausalLM", "StableLmForSequenceClassification"},
    {"Starcoder2ForCausalLM", "Starcoder2ForSequenceClassification"},
};

Result<std::unique_ptr<Model>> ReadClassifier(Json config, const std::string& where) {
  const std::string named = ArchitectureOf(config);
  const auto* known = std::find_if(std::begin(kClassifiers), std::end(kClassifiers),
                                   [&](const Classifier& c) { return c.of_sequences == named; });
  if (known == std::end(kClassifiers)) return Unknown(named, where);
  TEMPER_ASSIGN_OR_RETURN(const ClassNames classes, ReadClasses(config, where));
  config["architectures"] = Json::array({known->architecture});
  TEMPER_ASSIGN_OR_RETURN(const auto body, ModelFromConfig(config, where));
  auto model = body->WithClasses(named, classes.size());
  TEMPER_CHECK(model != nullptr) << named;
  return model;
}

}  // namespace

std::string_view ClassifierOf(std::string_view architecture) {
  for (const Classifier& c : kClassifiers) {
    if (c.architecture == architecture) return c.of_sequences;
  }
  return "";
}

Result<std::unique_ptr<Model>> ModelFromConfig(const Json& config, const std::string& where) {
  if (!config.is_object()) return Corrupt(where + ": should be a JSON object");
  if (HasClasses(config)) return ReadClassifier(config, where);
  TEMPER_RETURN_IF_ERROR(CheckQuantisation(config, where));
  const std::string architecture = ArchitectureOf(config), type = TextAt(config, "model_type");
  const Family* family = FamilyOfType(type);
  if (!architecture.empty()) {
    family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                          [&](const Family& f) { return f.architecture == architecture; });
    if (family == std::end(kFamilies)) family = nullptr;
  }
  if (family == nullptr) return Unknown(architecture.empty() ? type : architecture, where);
  if (family->read == nullptr) return ReadMultimodal(*family, config, where);
  if (HasObject(config, "text_config")) {
    return Unsupported(
        fmt::format("{}: {} has no text_config; its keys belong at the top of the file", where, family->architecture));
  }
  return ReadWith(*family, config, where);
}

}  // namespace temper
