#include "data/tokenizer/vocab_merges.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "format/json.h"

namespace temper {
namespace {

// The settings that the tokenizer class adds to the two files. The
// JSON is that of tokenizer.json, so that one reader serves both.
struct Kind {
  const char* tokenizer_class;
  const char* normalizer;
  const char* pre_tokenizer;          // may have one %s: true or false, add_prefix_space
  const char *bos, *eos, *unk, *pad;  // defaults; null for none
  bool add_bos;
};

constexpr const char* kGpt2PreTokenizer = R"({"type": "ByteLevel", "add_prefix_space": %s, "use_regex": true})";
// Qwen2: contractions in any case, single digits, line ends of their own.
constexpr const char* kQwen2PreTokenizer = R"({"type": "Sequence", "pretokenizers": [
  {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
   "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
  {"type": "ByteLevel", "add_prefix_space": %s, "use_regex": false}]})";

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr Kind kGpt2{"GPT2Tokenizer", "null", kGpt2PreTokenizer, kEndOfText, kEndOfText, kEndOfText, nullptr, false};
constexpr Kind kOpt{"GPT2Tokenizer", "null", kGpt2PreTokenizer, "</s>", "</s>", "</s>", "<pad>", true};
constexpr Kind kQwen2{"Qwen2Tokenizer", R"({"type": "NFC"})", kQwen2PreTokenizer, nullptr,
                      kEndOfText,       kEndOfText,           kEndOfText,         false};

Result<const Kind*> KindOf(const SpecialTokens& special, const std::string& where) {
  const std::string& name = special.tokenizer_class;
  const bool opt = special.model_type == "opt";
  const bool qwen = special.model_type.starts_with("qwen2") || special.model_type.starts_with("qwen3");
  if (name == "Qwen2Tokenizer" || (name.empty() && qwen)) return &kQwen2;
  if (name == "GPT2Tokenizer" || name.empty()) return opt ? &kOpt : &kGpt2;
  return Unsupported(
      fmt::format("{}: vocab.json and merges.txt of a {} are not supported (only of GPT2Tokenizer and "
                  "Qwen2Tokenizer); save the tokenizer as tokenizer.json",
                  where, name));
}

Json ParseBuiltIn(std::string_view text, bool add_prefix_space) {
  std::string json(text);
  if (const size_t at = json.find("%s"); at != json.npos) json.replace(at, 2, add_prefix_space ? "true" : "false");
  return *ParseJson(json, "a built-in tokenizer");
}

}  // namespace

// "a b" per line, the merge of lowest rank first; a "#version" line may lead.
Result<std::vector<Bpe::Merge>> ParseMerges(std::string_view text, const std::string& where) {
  std::vector<Bpe::Merge> merges;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version") || line.empty()) continue;
    const size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos || utf8::ValidPrefix(line) != line.size()) {
      return Corrupt(fmt::format("{}, line {}: a merge is two tokens with a space between", where, number));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

Result<VocabAndMergesSteps> StepsOfVocabAndMerges(const SpecialTokens& special, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Kind* kind, KindOf(special, where));
  return VocabAndMergesSteps{ParseBuiltIn(kind->normalizer, false),
                             ParseBuiltIn(kind->pre_tokenizer, special.add_prefix_space.value_or(false))};
}

Result<PipelineParts> ParseVocabAndMerges(std::string_view vocab, std::string_view merges, SpecialTokens& special,
                                          const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Kind* kind, KindOf(special, where));
  const std::string vocab_where = JoinPath(where, "vocab.json");
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(vocab, vocab_where));
  if (!json.is_object()) return Corrupt(vocab_where + ": should be an object of tokens and ids");
  std::vector<std::pair<std::string_view, int64_t>> tokens;
  for (auto it = json.begin(); it != json.end(); ++it) {
    if (!it->is_number_integer())
      return Corrupt(fmt::format("{}: the id of token '{}' is not an integer", vocab_where, it.key()));
    tokens.emplace_back(it.key(), it->get<int64_t>());
  }
  TEMPER_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(tokens, vocab_where));
  const std::string merges_where = JoinPath(where, "merges.txt");
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> pairs, ParseMerges(merges, merges_where));

  PipelineParts parts;
  TEMPER_ASSIGN_OR_RETURN(const VocabAndMergesSteps steps, StepsOfVocabAndMerges(special, where));
  TEMPER_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(steps.normalizer, where));
  BpeOptions options;
  TEMPER_ASSIGN_OR_RETURN(parts.pre_tokenizers, PreTokenizer::FromJson(steps.pre_tokenizer, &options.bytes_in, where));
  TEMPER_ASSIGN_OR_RETURN(parts.model, Bpe::Create(std::move(vocabulary), pairs, std::move(options), merges_where));
  TEMPER_ASSIGN_OR_RETURN(parts.decoder, Decoder::FromJson(ParseBuiltIn(R"({"type": "ByteLevel"})", false), where));

  // A default that the vocabulary lacks is not a token of this model.
  AddedTokenIds ids(parts.model->vocabulary());
  for (const AddedToken& token : special.added) TEMPER_RETURN_IF_ERROR(ids.Add(token, where));
  const auto fill = [&](SpecialRole& role, const char* content) {
    if (role.stated || !content) return;
    if (!parts.model->vocabulary().Find(content) && !ids.Has(content)) return;
    role.stated = true;
    role.token.emplace();
    role.token->content = content;
    role.token->special = true;
    role.token->normalized = false;
  };
  fill(special.bos, kind->bos);
  fill(special.eos, kind->eos);
  fill(special.unk, kind->unk);
  fill(special.pad, kind->pad);
  for (const SpecialRole* role : {&special.bos, &special.eos, &special.unk, &special.pad}) {
    if (role->token && !ids.Has(role->token->content)) TEMPER_RETURN_IF_ERROR(ids.Add(*role->token, where));
  }
  for (const AddedToken& token : special.additional) {
    if (!ids.Has(token.content)) TEMPER_RETURN_IF_ERROR(ids.Add(token, where));
  }
  TEMPER_ASSIGN_OR_RETURN(parts.added, AddedTokens::Create(ids.Take(), parts.normalizer.get(), where));

  const auto id_of = [&](const SpecialRole& role) -> std::optional<int32_t> {
    const AddedToken* token = role.token ? parts.added.Find(role.token->content) : nullptr;
    return token ? std::optional<int32_t>(token->id) : std::nullopt;
  };
  parts.post_processor =
      PostProcessor::Around(special.add_bos.value_or(kind->add_bos) ? id_of(special.bos) : std::nullopt,
                            special.add_eos.value_or(false) ? id_of(special.eos) : std::nullopt);
  return parts;
}

}  // namespace temper
