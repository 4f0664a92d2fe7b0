#include "data/tokenizer/gguf_pre_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// Steps, a line each, as StepOf writes them.
struct Known {
  std::string_view name, steps;
  bool ignores_merges = false;
};

#define TEMPER_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
// Letters of one case behind the other, as in o200k.
#define TEMPER_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEMPER_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEMPER_ENDS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
constexpr Known kKnown[] = {
    {"gpt-2", "words, bytes"},
    {"starcoder", "digits\nwords, bytes"},
    {"llama-bpe",
     "split " TEMPER_CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TEMPER_ENDS "\nbytes",
     true},
    {"smaug-bpe", "split " TEMPER_CONTRACTIONS
                  "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TEMPER_ENDS "\nbytes"},
    {"qwen2", "split " TEMPER_CONTRACTIONS
              "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TEMPER_ENDS "\nbytes"},
    {"qwen35",
     "split " TEMPER_CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TEMPER_ENDS "\nbytes"},
    {"seed-coder", "split " TEMPER_CONTRACTIONS
                   "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
                   "\nbytes"},
    {"gpt-4o", "split [^\\r\\n\\p{L}\\p{N}]?" TEMPER_UPPER "*" TEMPER_LOWER "+" TEMPER_CONTRACTIONS
               "?|[^\\r\\n\\p{L}\\p{N}]?" TEMPER_UPPER "+" TEMPER_LOWER "*" TEMPER_CONTRACTIONS
               "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TEMPER_ENDS "\nbytes"},
    {"tekken",
     "split [^\\r\\n\\p{L}\\p{N}]?" TEMPER_UPPER "*" TEMPER_LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" TEMPER_UPPER
     "+" TEMPER_LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TEMPER_ENDS "\nbytes",
     true},
    {"deepseek-v3",
     "split \\p{N}{1,3}\nsplit [一-龥぀-ゟ゠-ヿ]+\n"
     "split [!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+\nbytes"},
    {"falcon", "punctuation Contiguous\nwords, bytes\nnumbers\nsplit [0-9][0-9][0-9]"},
};

std::string StringAt(const Json& json, const char* key, const char* fallback) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : fallback;
}
bool FlagOf(const Json& json, const char* key, bool fallback) {
  const auto it = json.find(key);
  return it != json.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

std::string StepOf(const Json& json) {
  const std::string type = StringAt(json, "type", "");
  if (type == "ByteLevel") {
    const char* const prefix = FlagOf(json, "add_prefix_space", true) ? "a space before the text, " : "";
    return fmt::format("{}{}bytes", prefix, FlagOf(json, "use_regex", true) ? "words, " : "");
  }
  if (type == "Digits") return FlagOf(json, "individual_digits", false) ? "digits" : "numbers";
  if (type == "Split") {
    const auto pattern = json.find("pattern");
    const std::string expression = pattern == json.end() ? "" : StringAt(*pattern, "Regex", "");
    const std::string behavior = StringAt(json, "behavior", "");
    const bool invert = FlagOf(json, "invert", false);
    // Where the expression matches everywhere, both are the same.
    const bool isolated = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
    if (isolated && !expression.empty()) return "split " + expression;
    return fmt::format("split {} {}", behavior, DumpJson(json));
  }
  if (type == "Punctuation") return "punctuation " + StringAt(json, "behavior", "Isolated");
  return type;
}

void AddSteps(const Json& json, std::vector<std::string>* steps) {
  if (!json.is_object()) return;
  const auto inner = json.find("pretokenizers");
  if (StringAt(json, "type", "") != "Sequence" || inner == json.end()) {
    steps->push_back(StepOf(json));
    return;
  }
  for (const Json& step : *inner) AddSteps(step, steps);
}

}  // namespace

Result<GgufSteps> StepsOfGguf(std::string_view name, const std::string& where) {
  // Of names that cut alike the one of kKnown.
  static constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {{"phi-2", "gpt-2"},
                                                                                  {"olmo", "gpt-2"},
                                                                                  {"mpt", "gpt-2"},
                                                                                  {"jais", "gpt-2"},
                                                                                  {"gigachat", "gpt-2"},
                                                                                  {"refact", "starcoder"},
                                                                                  {"command-r", "starcoder"},
                                                                                  {"smollm", "starcoder"},
                                                                                  {"codeshell", "starcoder"},
                                                                                  {"exaone", "starcoder"},
                                                                                  {"llama3", "llama-bpe"},
                                                                                  {"llama-v3", "llama-bpe"},
                                                                                  {"falcon3", "llama-bpe"},
                                                                                  {"pixtral", "llama-bpe"},
                                                                                  {"dbrx", "smaug-bpe"},
                                                                                  {"deepseek-r1-qwen", "qwen2"},
                                                                                  {"hunyuan-dense", "deepseek-v3"}};
  const auto* const other = std::find_if(std::begin(kOtherNames), std::end(kOtherNames),
                                         [&](const auto& pair) { return pair.first == name; });
  const std::string_view known_as = other == std::end(kOtherNames) ? name : other->second;
  const auto* const known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == known_as; });
  if (known == std::end(kKnown)) {
    return Unsupported(
        fmt::format("{}: the pre-tokenizer {} is none of llama.cpp's that Temper knows. Use the model's "
                    "Hugging Face folder",
                    where, Quoted(std::string(name))));
  }
  GgufSteps steps{.ignores_merges = known->ignores_merges, .adds_bos = known_as == "llama-bpe" || known_as == "tekken"};
  if (known_as == "qwen2" || known_as == "qwen35") steps.normalizer = {{"type", "NFC"}};  // which llama.cpp leaves out
  Json list = Json::array();
  for (std::string_view rest = known->steps; !rest.empty();) {
    // An expression may have line ends in it: a step begins with a word of ours.
    size_t end = rest.find('\n');
    const auto begins_step = [](std::string_view text) {
      for (const char* word : {"split ", "bytes", "words, ", "digits", "numbers", "punctuation "}) {
        if (text.starts_with(word)) return true;
      }
      return false;
    };
    while (end != rest.npos && !begins_step(rest.substr(end + 1))) end = rest.find('\n', end + 1);
    const std::string_view step = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    constexpr std::string_view kSplit = "split ", kPunctuation = "punctuation ";
    if (step.starts_with(kSplit)) {
      list.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", std::string(step.substr(kSplit.size()))}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
    } else if (step.starts_with(kPunctuation)) {
      list.push_back({{"type", "Punctuation"}, {"behavior", std::string(step.substr(kPunctuation.size()))}});
    } else if (step == "digits" || step == "numbers") {
      list.push_back({{"type", "Digits"}, {"individual_digits", step == "digits"}});
    } else {
      list.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", step == "words, bytes"}});
    }
  }
  steps.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(list)}};
  return steps;
}

Result<std::vector<GgufPreTokenizer>> FindGgufPreTokenizers(const Json& pre_tokenizer, const std::string& where) {
  std::vector<std::string> steps;
  AddSteps(pre_tokenizer, &steps);
  const std::string all = fmt::format("{}", fmt::join(steps, "\n"));
  std::vector<GgufPreTokenizer> found;
  for (const Known& known : kKnown) {
    if (known.steps == all) found.push_back({std::string(known.name), known.ignores_merges});
  }
  if (!found.empty()) return found;
  return Unsupported(
      fmt::format("{}: the pre-tokenizer ({}) is none of those that llama.cpp has and Temper knows: a GGUF file cannot "
                  "hold this tokenizer. Export a Hugging Face folder instead, with --format hf",
                  where, Quoted(all)));
}

}  // namespace temper
