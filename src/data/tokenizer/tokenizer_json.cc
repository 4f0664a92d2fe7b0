#include "data/tokenizer/tokenizer_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/word_piece.h"
#include "format/json.h"

namespace temper {
namespace {

// A merge of tokens with spaces is tried at each: a longer one is none.
constexpr size_t kMaxSpacedMerge = 1024;

const Json& Member(const Json& object, const char* key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

// ["a", "b"], or "a b" in older files. There the tokens themselves may have spaces ("   " is " " and " "): then the one
// place counts where two tokens of `vocab` meet that make a third.
Result<Bpe::Merge> MergeFromJson(const Json& json, const Json& vocab, size_t rank, const std::string& where) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    return Bpe::Merge(json[0].get_ref<const std::string&>(), json[1].get_ref<const std::string&>());
  }
  if (json.is_string()) {
    const std::string_view text = json.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos) {
      return Bpe::Merge(text.substr(0, space), text.substr(space + 1));
    }
    const auto known = [&](const std::string& token) { return vocab.is_object() && vocab.contains(token); };
    std::optional<Bpe::Merge> found;
    size_t places = 0;
    for (size_t at = space; at != text.npos && text.size() <= kMaxSpacedMerge; at = text.find(' ', at + 1)) {
      const std::string left(text.substr(0, at)), right(text.substr(at + 1));
      if (!known(left) || !known(right) || !known(left + right)) continue;
      found = Bpe::Merge(text.substr(0, at), text.substr(at + 1));
      ++places;
    }
    if (places == 1) return *found;
    if (places > 1) {
      return Corrupt(fmt::format("{}: merge {} ('{}') can be read as two tokens in {} ways: write it as a list of two",
                                 where, rank, text.substr(0, 80), places));
    }
  }
  return Corrupt(fmt::format("{}: merge {} is not two tokens ({})", where, rank, DumpJson(json).substr(0, 80)));
}

// {"token": id, ...}
Result<Vocabulary> VocabularyFromJson(const Json& model, const char* type, const std::string& where) {
  const Json& vocab = Member(model, "vocab");
  if (!vocab.is_object()) return Corrupt(fmt::format("{}: the {} model's 'vocab' should be an object", where, type));
  std::vector<std::pair<std::string_view, int64_t>> tokens;
  tokens.reserve(vocab.size());
  for (auto it = vocab.begin(); it != vocab.end(); ++it) {
    if (!it->is_number_integer())
      return Corrupt(fmt::format("{}: the id of token '{}' is not an integer", where, it.key()));
    tokens.emplace_back(it.key(), it->get<int64_t>());
  }
  return Vocabulary::Create(tokens, where);
}

Result<std::unique_ptr<TokenModel>> BpeFromJson(const Json& model, bool bytes_in, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyFromJson(model, "BPE", where));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> pairs, MergesFromJson(model, where));
  BpeOptions options;
  if (!Member(model, "unk_token").is_null()) {
    TEMPER_ASSIGN_OR_RETURN(options.unk_token, StringOr(model, "unk_token", "", where));
  }
  TEMPER_ASSIGN_OR_RETURN(options.continuing_subword_prefix, StringOr(model, "continuing_subword_prefix", "", where));
  TEMPER_ASSIGN_OR_RETURN(options.end_of_word_suffix, StringOr(model, "end_of_word_suffix", "", where));
  TEMPER_ASSIGN_OR_RETURN(options.fuse_unk, BoolOr(model, "fuse_unk", false, where));
  TEMPER_ASSIGN_OR_RETURN(options.byte_fallback, BoolOr(model, "byte_fallback", false, where));
  TEMPER_ASSIGN_OR_RETURN(options.ignore_merges, BoolOr(model, "ignore_merges", false, where));
  options.bytes_in = bytes_in;
  TEMPER_ASSIGN_OR_RETURN(const double dropout, NumberOr(model, "dropout", 0, where));
  if (dropout != 0) {
    return Unsupported(
        fmt::format("{}: the BPE model has a dropout of {}: it encodes the same text differently each time. Set "
                    "\"dropout\" to null",
                    where, dropout));
  }
  TEMPER_ASSIGN_OR_RETURN(auto made, Bpe::Create(std::move(vocabulary), pairs, std::move(options), where));
  return std::unique_ptr<TokenModel>(std::move(made));
}

// "vocab": [["token", score], ...]
Result<std::unique_ptr<TokenModel>> UnigramFromJson(const Json& model, const std::string& where) {
  const Json& vocab = Member(model, "vocab");
  if (!vocab.is_array()) return Corrupt(where + ": the Unigram model's 'vocab' should be a list");
  std::vector<std::pair<std::string_view, int64_t>> tokens;
  std::vector<double> scores;
  for (const Json& one : vocab) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number()) {
      return Corrupt(fmt::format("{}: token {} of the Unigram model should be a list of its text and its score", where,
                                 tokens.size()));
    }
    tokens.emplace_back(one[0].get_ref<const std::string&>(), std::ssize(tokens));
    scores.push_back(one[1].get<double>());
  }
  TEMPER_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(tokens, where));
  if (Member(model, "unk_id").is_null()) {
    return Unsupported(where +
                       ": the Unigram model has no 'unk_id': a text with a character that it lacks would have no ids");
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t unknown, RequireInt(model, "unk_id", where));
  TEMPER_ASSIGN_OR_RETURN(const bool byte_fallback, BoolOr(model, "byte_fallback", false, where));
  if (unknown < 0 || unknown >= std::ssize(tokens)) {
    return Corrupt(
        fmt::format("{}: the Unigram model has {} tokens, and 'unk_id' is {}", where, tokens.size(), unknown));
  }
  return Unigram::Create(std::move(vocabulary), std::move(scores), static_cast<int32_t>(unknown), byte_fallback, where);
}

Result<std::unique_ptr<TokenModel>> WordPieceFromJson(const Json& model, const std::string& where) {
  WordPieceOptions options;
  TEMPER_ASSIGN_OR_RETURN(options.unk_token, StringOr(model, "unk_token", options.unk_token, where));
  TEMPER_ASSIGN_OR_RETURN(options.continuing_subword_prefix,
                          StringOr(model, "continuing_subword_prefix", options.continuing_subword_prefix, where));
  TEMPER_ASSIGN_OR_RETURN(options.max_input_chars_per_word,
                          IntOr(model, "max_input_chars_per_word", options.max_input_chars_per_word, where));
  TEMPER_ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyFromJson(model, "WordPiece", where));
  return WordPiece::Create(std::move(vocabulary), std::move(options), where);
}

Status AddFromJson(const Json& list, AddedTokenIds& ids, const std::string& where) {
  if (list.is_null()) return OkStatus();
  if (!list.is_array()) return Corrupt(where + ": 'added_tokens' should be a list");
  for (const Json& json : list) {
    AddedToken token;
    TEMPER_ASSIGN_OR_RETURN(token.content, StringOr(json, "content", "", where));
    TEMPER_ASSIGN_OR_RETURN(const int64_t id, RequireInt(json, "id", where));
    if (id < 0 || id > kMaxTokenId)
      return Corrupt(fmt::format("{}: the added token '{}' has the id {}", where, token.content, id));
    token.id = static_cast<int32_t>(id);
    TEMPER_ASSIGN_OR_RETURN(token.single_word, BoolOr(json, "single_word", false, where));
    TEMPER_ASSIGN_OR_RETURN(token.lstrip, BoolOr(json, "lstrip", false, where));
    TEMPER_ASSIGN_OR_RETURN(token.rstrip, BoolOr(json, "rstrip", false, where));
    TEMPER_ASSIGN_OR_RETURN(token.special, BoolOr(json, "special", false, where));
    TEMPER_ASSIGN_OR_RETURN(token.normalized, BoolOr(json, "normalized", !token.special, where));
    TEMPER_RETURN_IF_ERROR(ids.Add(std::move(token), where));
  }
  return OkStatus();
}

}  // namespace

Result<std::string> ModelTypeOf(const Json& tokenizer_json, const std::string& where) {
  const Json& model = Member(tokenizer_json, "model");
  if (!model.is_object()) return Corrupt(where + ": has no 'model'");
  // Files from before 2020 have no type; only BPE has merges.
  return StringOr(model, "type", model.contains("merges") ? "BPE" : "(none)", where);
}

Result<std::vector<Bpe::Merge>> MergesFromJson(const Json& model, const std::string& where) {
  const Json& merges = Member(model, "merges");
  if (!merges.is_array()) return Corrupt(where + ": the BPE model's 'merges' should be a list");
  std::vector<Bpe::Merge> pairs;
  pairs.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    TEMPER_ASSIGN_OR_RETURN(const Bpe::Merge merge, MergeFromJson(merges[rank], Member(model, "vocab"), rank, where));
    pairs.push_back(merge);
  }
  return pairs;
}

Result<std::optional<Json>> StepsOfClass(const Json& tokenizer_json, const SpecialTokens& special,
                                         const std::string& where) {
  const Json& tokens = Member(tokenizer_json, "added_tokens");
  if (special.tokenizer_class != "LlamaTokenizer" || !tokens.is_array()) return std::optional<Json>();
  TEMPER_ASSIGN_OR_RETURN(const auto normalizer, Normalizer::FromJson(Member(tokenizer_json, "normalizer"), where));
  bool splits = false;
  for (const Json& token : tokens) {
    TEMPER_ASSIGN_OR_RETURN(const std::string content, StringOr(token, "content", "", where));
    TEMPER_ASSIGN_OR_RETURN(const bool is_special, BoolOr(token, "special", false, where));
    TEMPER_ASSIGN_OR_RETURN(const bool normalized, BoolOr(token, "normalized", !is_special, where));
    if (!normalizer || !is_special || !normalized) continue;
    RegexScratch scratch;
    Stretch stretch{content, /*at_start=*/true, GrowthLimit(content.size())};
    TEMPER_RETURN_IF_ERROR(normalizer->Apply(stretch, scratch));
    splits |= stretch.text != content;
  }
  if (!splits) return std::optional<Json>();
  const char* scheme = !special.add_prefix_space.value_or(true) ? "never"
                       : special.legacy.value_or(false)         ? "always"
                                                                : "first";
  return std::optional(Json{
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}}}});
}

Result<PipelineParts> ParseTokenizerJson(std::string_view text, const SpecialTokens& special,
                                         const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(Json json, ParseJson(text, where));
  if (!json.is_object()) return Corrupt(where + ": should be a JSON object");
  TEMPER_ASSIGN_OR_RETURN(const std::optional<Json> steps, StepsOfClass(json, special, where));
  if (steps) json.update(*steps);
  TEMPER_ASSIGN_OR_RETURN(const std::string type, ModelTypeOf(json, where));
  const Json& model = Member(json, "model");

  PipelineParts parts;
  TEMPER_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(Member(json, "normalizer"), where));
  bool bytes_in = false;
  bool* bytes_wanted = nullptr;
  if (type == "BPE") {
    TEMPER_ASSIGN_OR_RETURN(const std::string prefix, StringOr(model, "continuing_subword_prefix", "", where));
    TEMPER_ASSIGN_OR_RETURN(const std::string suffix, StringOr(model, "end_of_word_suffix", "", where));
    if (prefix.empty() && suffix.empty()) bytes_wanted = &bytes_in;
  }
  TEMPER_ASSIGN_OR_RETURN(parts.pre_tokenizers,
                          PreTokenizer::FromJson(Member(json, "pre_tokenizer"), bytes_wanted, where));
  if (type == "BPE") {
    TEMPER_ASSIGN_OR_RETURN(parts.model, BpeFromJson(model, bytes_in, where));
  } else if (type == "Unigram") {
    TEMPER_ASSIGN_OR_RETURN(parts.model, UnigramFromJson(model, where));
  } else if (type == "WordPiece") {
    TEMPER_ASSIGN_OR_RETURN(parts.model, WordPieceFromJson(model, where));
  } else {
    return Unsupported(
        fmt::format("{}: the tokenizer model '{}' is not supported (BPE, Unigram and WordPiece are)", where, type));
  }
  TEMPER_ASSIGN_OR_RETURN(parts.decoder, Decoder::FromJson(Member(json, "decoder"), where));
  TEMPER_ASSIGN_OR_RETURN(parts.post_processor, PostProcessor::FromJson(Member(json, "post_processor"), where));

  AddedTokenIds ids(parts.model->vocabulary());
  TEMPER_RETURN_IF_ERROR(AddFromJson(Member(json, "added_tokens"), ids, where));
  for (const AddedToken& token : special.added) {
    TEMPER_RETURN_IF_ERROR(ids.Add(token, where + " with tokenizer_config.json"));
  }
  for (const SpecialRole* role : {&special.bos, &special.eos, &special.unk, &special.pad}) {
    if (role->token && !ids.Has(role->token->content)) TEMPER_RETURN_IF_ERROR(ids.Add(*role->token, where));
  }
  for (const AddedToken& token : special.additional) {
    if (!ids.Has(token.content)) TEMPER_RETURN_IF_ERROR(ids.Add(token, where));
  }
  TEMPER_ASSIGN_OR_RETURN(parts.added, AddedTokens::Create(ids.Take(), parts.normalizer.get(), where));

  // tokenizer_config.json overrides BOS and EOS if it has them; Llama's class adds BOS by default.
  if (special.add_bos || special.add_eos) {
    const auto id_of = [&](const SpecialRole& role) -> std::optional<int32_t> {
      const AddedToken* token = role.token ? parts.added.Find(role.token->content) : nullptr;
      return token ? std::optional<int32_t>(token->id) : std::nullopt;
    };
    const bool llama = special.tokenizer_class == "LlamaTokenizer";
    parts.post_processor = PostProcessor::Around(special.add_bos.value_or(llama) ? id_of(special.bos) : std::nullopt,
                                                 special.add_eos.value_or(false) ? id_of(special.eos) : std::nullopt);
  }
  // An id without a token would index a row that the model's embedding lacks.
  for (const int32_t id : parts.post_processor.ids()) {
    if (parts.added.Find(id) || parts.model->vocabulary().Has(id)) continue;
    return Corrupt(fmt::format("{}: the post_processor adds the id {}, which is not a token", where, id));
  }
  return parts;
}

}  // namespace temper
