#include "data/tokenizer/new_tokens.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/utf8.h"
#include "format/json.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "format/text_stream.h"

namespace temper {
namespace {

constexpr char kTokenizerFile[] = "tokenizer.json", kConfigFile[] = "tokenizer_config.json";
constexpr size_t kMostTokens = 1 << 16;

Result<AddedToken> TokenOf(const Json& json, const std::string& where) {
  AddedToken token{.normalized = false, .special = true};
  if (json.is_string()) {
    token.content = json.get<std::string>();
    return token;
  }
  if (!json.is_object()) return InvalidArgument(where + " should be a text, or an object with a content");
  static const std::set<std::string> kKeys = {"content", "special", "normalized", "lstrip", "rstrip", "single_word"};
  for (const auto& [key, value] : json.items()) {
    if (!kKeys.contains(key)) return InvalidArgument(fmt::format("{} has an unknown key {}", where, Quoted(key)));
  }
  TEMPER_ASSIGN_OR_RETURN(token.content, StringOr(json, "content", "", where));
  TEMPER_ASSIGN_OR_RETURN(token.special, BoolOr(json, "special", true, where));
  TEMPER_ASSIGN_OR_RETURN(token.normalized, BoolOr(json, "normalized", !token.special, where));
  TEMPER_ASSIGN_OR_RETURN(token.lstrip, BoolOr(json, "lstrip", false, where));
  TEMPER_ASSIGN_OR_RETURN(token.rstrip, BoolOr(json, "rstrip", false, where));
  TEMPER_ASSIGN_OR_RETURN(token.single_word, BoolOr(json, "single_word", false, where));
  return token;
}

OrderedJson EntryOf(const AddedToken& token) {
  return {{"content", token.content}, {"single_word", token.single_word}, {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},   {"normalized", token.normalized},   {"special", token.special}};
}

// Where the list of that key of the outermost object ends, at its bracket; npos: there is none. REQUIRES: valid JSON.
// A vocabulary of 10^5 keys that keep their order would take minutes to read.
size_t EndOfList(std::string_view text, std::string_view key) {
  int depth = 0, list = 0;  // the list's own depth, 0: not within it
  std::string_view last;    // text at depth 1
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const size_t begin = i + 1;
      for (++i; text[i] != '"'; ++i) i += text[i] == '\\';
      if (depth == 1) last = text.substr(begin, i - begin);
    } else if (c == '{' || c == '[') {
      ++depth;
      if (c == '[' && depth == 2 && last == key) list = depth;
    } else if (c == '}' || c == ']') {
      if (depth == list) return i;
      --depth;
    } else if (c == ',' && depth == 1) {
      last = {};
    }
  }
  return std::string_view::npos;
}

// `text` of tokenizer.json, otherwise byte for byte.
Result<std::string> WithTokens(std::string text, const std::vector<AddedToken>& tokens, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  const size_t end = EndOfList(text, "added_tokens");
  if (!json.is_object() || end == std::string::npos) {
    return Unsupported(
        fmt::format("{}: has no list added_tokens, to which tokens could be added: save the tokenizer again "
                    "with transformers",
                    where));
  }
  const size_t before = text.find_last_not_of(" \t\r\n", end - 1);
  std::string added;
  for (const AddedToken& token : tokens) {
    OrderedJson entry = {{"id", token.id}};
    entry.update(EntryOf(token));
    added += (added.empty() && text[before] == '[' ? "\n    " : ",\n    ") + DumpJson(entry);
  }
  return text.insert(before + 1, added);
}

Result<std::string> ConfigWithTokens(const std::string& text, const std::vector<AddedToken>& tokens,
                                     const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(OrderedJson config, ParseOrderedPythonJson(text, where));
  const OrderedJson* const list = FindValue(config, "added_tokens_decoder");
  if (list == nullptr || !list->is_object()) return text;  // transformers then takes those of tokenizer.json
  for (const AddedToken& token : tokens) {
    config["added_tokens_decoder"][std::to_string(token.id)] = EntryOf(token);
  }
  return PrintPythonJson(std::move(config), text);
}

}  // namespace

Result<std::vector<AddedToken>> ReadNewTokens(Env& env, const std::string& given) {
  const bool is_text = given.starts_with('[') && !env.IsFile(given);
  const std::string path = is_text ? "add_tokens" : given;
  std::string text = given;
  if (!is_text) {
    TEMPER_ASSIGN_OR_RETURN(text, ReadTextFile(env, path, MiB(16)));
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::vector<AddedToken> tokens;
  std::vector<std::string> places;
  const size_t first = text.find_first_not_of(" \t\r\n");
  // A token may begin with a bracket, but then it does not begin a JSON document.
  const auto json = first != std::string::npos && text[first] == '[' ? ParseJson(text, path) : Result<Json>(Json());
  const bool is_list = is_text || path.ends_with(".json") || (json.ok() && json->is_array());
  if (is_list) {
    TEMPER_RETURN_IF_ERROR(json.status());
    if (!json->is_array()) return InvalidArgument(path + ": should be a list of tokens");
    for (const Json& entry : *json) {
      places.push_back(fmt::format("{}: entry {}", path, places.size() + 1));
      TEMPER_ASSIGN_OR_RETURN(tokens.emplace_back(), TokenOf(entry, places.back()));
    }
  } else {
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      if (line.ends_with('\r')) line.pop_back();
      places.push_back(fmt::format("{} line {}", path, places.size() + 1));
      if (!utf8::IsValid(line)) {
        return InvalidArgument(fmt::format("{}: is not UTF-8: convert the file with iconv -t UTF-8", places.back()));
      }
      tokens.push_back({.content = std::move(line), .normalized = false, .special = true});
    }
  }
  if (tokens.empty()) return InvalidArgument(path + ": has no token: write one a line");
  if (tokens.size() > kMostTokens) {
    return InvalidArgument(fmt::format("{}: has {} tokens; at most {} are added", path, tokens.size(), kMostTokens));
  }
  std::map<std::string_view, size_t> seen;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& content = tokens[i].content;
    if (content.find_first_not_of(" \t") == std::string::npos) {
      return InvalidArgument(fmt::format("{}: is empty: remove it, or write a token", places[i]));
    }
    const auto [at, fresh] = seen.emplace(content, i);
    if (fresh) continue;
    return InvalidArgument(
        fmt::format("{}: {} was listed before ({}): remove it", places[i], Quoted(content), places[at->second]));
  }
  return tokens;
}

Status NumberNewTokens(const Tokenizer& tokenizer, const std::string& where, std::vector<AddedToken>* tokens) {
  int64_t next = tokenizer.vocab_size();
  for (AddedToken& token : *tokens) {
    if (const auto id = tokenizer.TokenToId(token.content)) {
      return InvalidArgument(fmt::format(
          "{}: {} is token {} of the tokenizer already: remove it; lora.trainable_token_indices: [{}] trains "
          "its row",
          where, Quoted(token.content), *id, *id));
    }
    token.id = static_cast<int32_t>(next++);
  }
  return OkStatus();
}

Result<std::map<std::string, std::string>> FilesWithTokens(Env& env, const std::string& folder,
                                                           const std::map<std::string, std::string>& replaced,
                                                           const std::vector<AddedToken>& tokens) {
  const auto text_of = [&](const char* name) -> Result<std::string> {
    if (const auto own = replaced.find(name); own != replaced.end()) return own->second;
    return ReadTextFile(env, JoinPath(folder, name), GiB(1));
  };
  if (!replaced.contains(kTokenizerFile) && !env.IsFile(JoinPath(folder, kTokenizerFile))) {
    return Unsupported(
        fmt::format("{} has no {}, to which tokens could be added: load the folder with transformers' "
                    "AutoTokenizer and save it again (save_pretrained)",
                    folder, kTokenizerFile));
  }
  std::map<std::string, std::string> files;
  TEMPER_ASSIGN_OR_RETURN(std::string text, text_of(kTokenizerFile));
  TEMPER_ASSIGN_OR_RETURN(files[kTokenizerFile], WithTokens(std::move(text), tokens, JoinPath(folder, kTokenizerFile)));
  if (!replaced.contains(kConfigFile) && !env.IsFile(JoinPath(folder, kConfigFile))) return files;
  TEMPER_ASSIGN_OR_RETURN(text, text_of(kConfigFile));
  TEMPER_ASSIGN_OR_RETURN(files[kConfigFile], ConfigWithTokens(text, tokens, JoinPath(folder, kConfigFile)));
  return files;
}

}  // namespace temper
