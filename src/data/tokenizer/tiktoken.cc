#include "data/tokenizer/tiktoken.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/byte_level.h"
#include "format/base64.h"

namespace temper {
namespace {

// Each of a token's bytes is a place where two tokens may have met: longer ones are refused. Real ones have 128 at
// most.
constexpr size_t kMaxToken = 1024;

// What a model's code says of its tokenizer.
struct RanksKind {
  const char* file;
  const char* tokenizer_class;  // of tokenizer_config.json
  const char* normalizer;
  const char* pattern;
  std::span<const char* const> names;  // of the first special tokens
  const char* others;                  // of the special tokens behind: {} is a number
  int first_number;                    // -1: their id
  int special_tokens;
  const char *bos, *eos, *unk, *pad;  // null for none
  std::span<const char* const> stops;
  bool add_bos;
};

constexpr const char* kLlama3Names[] = {"<|begin_of_text|>",
                                        "<|end_of_text|>",
                                        "<|reserved_special_token_0|>",
                                        "<|reserved_special_token_1|>",
                                        "<|finetune_right_pad_id|>",
                                        "<|step_id|>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|eom_id|>",
                                        "<|eot_id|>",
                                        "<|python_tag|>"};
constexpr const char* kLlama3Stops[] = {"<|eom_id|>", "<|eot_id|>"};
constexpr RanksKind kLlama3{"tokenizer.model",
                            "LlamaTokenizer",
                            "null",
                            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                            "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                            kLlama3Names,
                            "<|reserved_special_token_{}|>",
                            2,
                            256,
                            "<|begin_of_text|>",
                            "<|end_of_text|>",
                            nullptr,
                            nullptr,
                            kLlama3Stops,
                            true};

// The code's [A&&[^\p{Han}]] is written here as (?!\p{Han})[A].
constexpr RanksKind kKimi{"tiktoken.model",
                          "TikTokenTokenizer",
                          "null",
                          "\\p{Han}+|"
                          "[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
                          "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                          "[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
                          "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                          "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                          {},
                          "<|reserved_token_{}|>",
                          -1,
                          256,
                          "[BOS]",
                          "[EOS]",
                          "[UNK]",
                          "[PAD]",
                          {},
                          false};

constexpr const char* kQwenNames[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
constexpr const char* kQwenStops[] = {"<|im_end|>"};
constexpr RanksKind kQwen{"qwen.tiktoken",
                          "QWenTokenizer",
                          R"({"type": "NFC"})",
                          "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                          kQwenNames,
                          "<|extra_{}|>",
                          0,
                          208,
                          nullptr,
                          "<|endoftext|>",
                          nullptr,
                          "<|endoftext|>",
                          kQwenStops,
                          false};

constexpr const RanksKind* kKinds[] = {&kLlama3, &kKimi, &kQwen};

Result<const RanksKind*> RanksKindOf(const SpecialTokens& special, const std::string& path) {
  const std::string_view file = std::string_view(path).substr(path.rfind('/') + 1);
  const std::string& name = special.tokenizer_class;
  const bool named = !name.empty() && name != "PreTrainedTokenizer";
  for (const RanksKind* kind : kKinds) {
    if (named ? name == kind->tokenizer_class : file == kind->file) return kind;
  }
  return Unsupported(fmt::format(
      "{}: tiktoken's file of a {} is not supported (of LlamaTokenizer, TikTokenTokenizer and "
      "QWenTokenizer it is): its words and special tokens are only in the model's code. Save the tokenizer as "
      "tokenizer.json",
      path, named ? name : "tokenizer without a class"));
}

struct Ranks {
  std::vector<std::string> tokens;                   // by rank
  std::unordered_map<std::string_view, size_t> ids;  // of `tokens`
};

Result<Ranks> ReadRanks(std::string_view text, const std::string& path) {
  std::vector<std::pair<std::string, int64_t>> lines;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    ++number;
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    auto token = DecodeBase64(line.substr(0, space));
    int64_t rank = -1;
    const char* const last = line.data() + line.size();
    const bool counted = space != line.npos && std::from_chars(line.data() + space + 1, last, rank).ptr == last;
    if (!token || token->empty() || !counted) {
      return Corrupt(fmt::format("{}, line {}: should be a token in base64 and its rank", path, number));
    }
    if (token->size() > kMaxToken) {
      return Unsupported(fmt::format("{}, line {}: a token of {} bytes; at most {} are supported", path, number,
                                     token->size(), kMaxToken));
    }
    lines.emplace_back(*std::move(token), rank);
  }
  Ranks ranks;
  ranks.tokens.resize(lines.size());
  for (auto& [token, rank] : lines) {
    if (rank < 0 || rank >= std::ssize(lines) || !ranks.tokens[static_cast<size_t>(rank)].empty()) {
      return Corrupt(fmt::format("{}: {} tokens, of which one has the rank {}: they should be all from 0 on", path,
                                 lines.size(), rank));
    }
    ranks.tokens[static_cast<size_t>(rank)] = std::move(token);
  }
  ranks.ids.reserve(lines.size());
  for (size_t rank = 0; rank < ranks.tokens.size(); ++rank) {
    if (!ranks.ids.emplace(ranks.tokens[rank], rank).second) {
      return Corrupt(fmt::format("{}: rank {} has the token of another one", path, rank));
    }
  }
  return ranks;
}

// Each pair of tokens that makes a token, by rank of what it makes, as lines of merges.txt.
std::string MergesOf(const Ranks& ranks, const std::vector<std::string>& spelled) {
  std::string lines;
  std::vector<std::pair<size_t, size_t>> pairs;
  for (const std::string_view token : ranks.tokens) {
    pairs.clear();
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks.ids.find(token.substr(0, at));
      if (left == ranks.ids.end()) continue;
      const auto right = ranks.ids.find(token.substr(at));
      if (right != ranks.ids.end()) pairs.emplace_back(left->second, right->second);
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [left, right] : pairs) lines.append(spelled[left]).append(" ").append(spelled[right]).append("\n");
  }
  return lines;
}

// The special tokens: those that files of the folder name, and the code's names for the other ids.
Result<AddedTokens> SpecialsOf(const RanksKind& kind, int32_t first, const Vocabulary& vocabulary,
                               const SpecialTokens& special, const Normalizer* normalizer, const std::string& path) {
  std::vector<AddedToken> tokens;
  std::set<int32_t> taken;
  std::set<std::string> names;
  for (const AddedToken& token : special.added) {
    tokens.push_back(token);
    taken.insert(token.id);
    names.insert(token.content);
  }
  for (int i = 0; i < kind.special_tokens; ++i) {
    if (taken.contains(first + i)) continue;
    const auto named = static_cast<int>(kind.names.size());
    const int number = kind.first_number < 0 ? first + i : kind.first_number + i - named;
    AddedToken token{
        .content = i < named ? kind.names[static_cast<size_t>(i)] : fmt::format(fmt::runtime(kind.others), number),
        .id = first + i,
        .normalized = false,
        .special = true};
    if (names.insert(token.content).second) tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (const AddedToken& token : tokens) {
    const auto known = vocabulary.Find(token.content);
    if (token.id >= first || known == token.id) continue;
    return Corrupt(
        fmt::format("{}: the added token '{}' has the id {}, which is another token's", path, token.content, token.id));
  }
  return AddedTokens::Create(std::move(tokens), normalizer, path);
}

}  // namespace

bool LooksLikeTiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, std::min<size_t>(text.find('\n'), 256));
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0 || space + 1 == line.size()) return false;
  for (size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    const bool fits =
        i < space ? std::isalnum(c) || c == '+' || c == '/' || c == '=' : i == space || std::isdigit(c) || c == '\r';
    if (!fits) return false;
  }
  return true;
}

std::optional<std::string> FindTiktokenFile(Env& env, const std::string& folder) {
  for (const RanksKind* kind : {&kKimi, &kQwen}) {
    std::string path = JoinPath(folder, kind->file);
    if (env.IsFile(path)) return path;
  }
  return std::nullopt;
}

Result<TiktokenFiles> ParseTiktoken(std::string_view text, SpecialTokens& special, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const RanksKind* kind, RanksKindOf(special, path));
  TEMPER_ASSIGN_OR_RETURN(const Ranks ranks, ReadRanks(text, path));
  if (ranks.tokens.empty()) return Corrupt(path + ": has no tokens");
  std::vector<std::string> spelled;
  std::vector<std::pair<std::string_view, int64_t>> tokens;
  spelled.reserve(ranks.tokens.size());
  for (const std::string& token : ranks.tokens) spelled.push_back(SpelledOut(token));
  for (const std::string& token : spelled) tokens.emplace_back(token, std::ssize(tokens));
  TEMPER_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(tokens, path));

  TiktokenFiles files;
  TEMPER_ASSIGN_OR_RETURN(files.normalizer, ParseJson(kind->normalizer, "a built-in tokenizer"));
  files.pre_tokenizer = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", kind->pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  files.merges = MergesOf(ranks, spelled);
  std::vector<Bpe::Merge> merges;
  for (std::string_view rest = files.merges; !rest.empty();) {
    const size_t end = rest.find('\n'), space = rest.find(' ');
    merges.emplace_back(rest.substr(0, space), rest.substr(space + 1, end - space - 1));
    rest.remove_prefix(end + 1);
  }
  PipelineParts& parts = files.parts;
  BpeOptions options{.ignore_merges = true, .ranks_are_ids = true};
  TEMPER_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(files.normalizer, path));
  TEMPER_ASSIGN_OR_RETURN(parts.pre_tokenizers, PreTokenizer::FromJson(files.pre_tokenizer, &options.bytes_in, path));
  TEMPER_ASSIGN_OR_RETURN(parts.model, Bpe::Create(std::move(vocabulary), merges, std::move(options), path));
  TEMPER_ASSIGN_OR_RETURN(parts.decoder, Decoder::FromJson(Json{{"type", "ByteLevel"}}, path));
  TEMPER_ASSIGN_OR_RETURN(parts.added, SpecialsOf(*kind, static_cast<int32_t>(ranks.tokens.size()),
                                                  parts.model->vocabulary(), special, parts.normalizer.get(), path));

  const auto fill = [&](SpecialRole& role, const char* content) {
    if (role.stated || !content || !parts.added.Find(content)) return;
    role.stated = true;
    role.token = *parts.added.Find(content);
  };
  fill(special.bos, kind->bos);
  fill(special.eos, kind->eos);
  fill(special.unk, kind->unk);
  fill(special.pad, kind->pad);
  for (const char* stop : kind->stops) {
    const AddedToken* token = parts.added.Find(stop);
    if (token) special.eos_ids.push_back(token->id);
  }
  const AddedToken* bos = special.bos.token ? parts.added.Find(special.bos.token->content) : nullptr;
  const AddedToken* eos = special.eos.token ? parts.added.Find(special.eos.token->content) : nullptr;
  parts.post_processor =
      PostProcessor::Around(bos && special.add_bos.value_or(kind->add_bos) ? std::optional(bos->id) : std::nullopt,
                            eos && special.add_eos.value_or(false) ? std::optional(eos->id) : std::nullopt);
  return files;
}

}  // namespace temper
