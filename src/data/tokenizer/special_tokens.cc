#include "data/tokenizer/special_tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "format/python_json.h"

namespace temper {
namespace {

// The largest known files (10^5 added tokens) have less than 30 MB.
constexpr Bytes kMaxFile = MiB(64);

// An empty object for an absent file.
Result<Json> ReadOptional(Env& env, const std::string& path) {
  if (!env.IsFile(path)) return Json(Json::object());
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxFile));
  TEMPER_ASSIGN_OR_RETURN(Json json, ParsePythonJson(text, path));
  if (!json.is_object()) return Corrupt(path + ": should be a JSON object");
  return json;
}

// From {"content": "<s>", "lstrip": false, ...}, or a plain string.
Result<AddedToken> TokenFromJson(const Json& json, bool special, const std::string& where) {
  AddedToken token;
  token.special = special;
  token.normalized = !special;
  if (json.is_string()) {
    token.content = json.get<std::string>();
    return token;
  }
  if (!json.is_object()) return Corrupt(where + ": a token should be a string or an object with 'content'");
  TEMPER_ASSIGN_OR_RETURN(token.content, StringOr(json, "content", "", where));
  TEMPER_ASSIGN_OR_RETURN(token.single_word, BoolOr(json, "single_word", false, where));
  TEMPER_ASSIGN_OR_RETURN(token.lstrip, BoolOr(json, "lstrip", false, where));
  TEMPER_ASSIGN_OR_RETURN(token.rstrip, BoolOr(json, "rstrip", false, where));
  TEMPER_ASSIGN_OR_RETURN(token.special, BoolOr(json, "special", special, where));
  TEMPER_ASSIGN_OR_RETURN(token.normalized, BoolOr(json, "normalized", !token.special, where));
  return token;
}

Status ReadRole(const Json& json, const char* key, SpecialRole& role, const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end() || role.stated) return OkStatus();
  role.stated = true;
  if (it->is_null()) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(AddedToken token, TokenFromJson(*it, /*special=*/true, where));
  if (!token.content.empty()) role.token = std::move(token);
  return OkStatus();
}

Status ReadRoles(const Json& json, SpecialTokens& out, const std::string& where) {
  TEMPER_RETURN_IF_ERROR(ReadRole(json, "bos_token", out.bos, where));
  TEMPER_RETURN_IF_ERROR(ReadRole(json, "eos_token", out.eos, where));
  TEMPER_RETURN_IF_ERROR(ReadRole(json, "unk_token", out.unk, where));
  TEMPER_RETURN_IF_ERROR(ReadRole(json, "pad_token", out.pad, where));
  const auto more = json.find("additional_special_tokens");
  if (more != json.end() && more->is_array() && out.additional.empty()) {
    for (const Json& one : *more) {
      TEMPER_ASSIGN_OR_RETURN(AddedToken token, TokenFromJson(one, /*special=*/true, where));
      out.additional.push_back(std::move(token));
    }
  }
  return OkStatus();
}

Result<std::optional<bool>> OptionalBool(const Json& json, const char* key, const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::optional<bool>();
  TEMPER_ASSIGN_OR_RETURN(const bool value, BoolOr(json, key, false, where));
  return std::optional<bool>(value);
}

Status CheckId(int64_t id, const std::string& where) {
  if (id >= 0 && id <= kMaxTokenId) return OkStatus();
  return Corrupt(fmt::format("{}: the token id {} is not between 0 and {}", where, id, kMaxTokenId));
}

// {"0": {"content": ...}, ...}
Status ReadAddedTokensDecoder(const Json& config, std::vector<AddedToken>& out, const std::string& where) {
  const auto it = config.find("added_tokens_decoder");
  if (it == config.end() || it->is_null()) return OkStatus();
  if (!it->is_object()) return Corrupt(where + ": 'added_tokens_decoder' should be an object");
  for (const auto& [key, value] : it->items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) id = -1;
    TEMPER_RETURN_IF_ERROR(CheckId(id, where + ": added_tokens_decoder"));
    TEMPER_ASSIGN_OR_RETURN(AddedToken token, TokenFromJson(value, /*special=*/false, where));
    token.id = static_cast<int32_t>(id);
    out.push_back(std::move(token));
  }
  return OkStatus();
}

// Ids of "eos_token_id" and similar keys: one, a list, or null. Some tools write a negative id for none.
std::vector<int32_t> IdsOf(const Json& json, const char* key) {
  std::vector<int32_t> ids;
  const auto add = [&](const Json& value) {
    if (!value.is_number_integer()) return;
    const int64_t id = value.get<int64_t>();
    if (id >= 0 && id <= kMaxTokenId) ids.push_back(static_cast<int32_t>(id));
  };
  const auto it = json.find(key);
  if (it == json.end()) return ids;
  add(*it);
  if (it->is_array()) {
    for (const Json& one : *it) add(one);
  }
  return ids;
}

}  // namespace

Result<SpecialTokens> SpecialTokens::Read(Env& env, const std::string& folder) {
  SpecialTokens out;
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  TEMPER_ASSIGN_OR_RETURN(const Json config, ReadOptional(env, config_path));
  TEMPER_ASSIGN_OR_RETURN(out.tokenizer_class, StringOr(config, "tokenizer_class", "", config_path));
  if (out.tokenizer_class.ends_with("Fast")) out.tokenizer_class.resize(out.tokenizer_class.size() - 4);
  TEMPER_RETURN_IF_ERROR(ReadRoles(config, out, config_path));
  TEMPER_ASSIGN_OR_RETURN(out.add_bos, OptionalBool(config, "add_bos_token", config_path));
  TEMPER_ASSIGN_OR_RETURN(out.add_eos, OptionalBool(config, "add_eos_token", config_path));
  TEMPER_ASSIGN_OR_RETURN(out.add_prefix_space, OptionalBool(config, "add_prefix_space", config_path));
  TEMPER_ASSIGN_OR_RETURN(out.legacy, OptionalBool(config, "legacy", config_path));
  TEMPER_RETURN_IF_ERROR(ReadAddedTokensDecoder(config, out.added, config_path));

  const std::string map_path = JoinPath(folder, "special_tokens_map.json");
  TEMPER_ASSIGN_OR_RETURN(const Json map, ReadOptional(env, map_path));
  TEMPER_RETURN_IF_ERROR(ReadRoles(map, out, map_path));

  // The older form of added_tokens_decoder, without flags: {"<|im_end|>": 151645}.
  const std::string added_path = JoinPath(folder, "added_tokens.json");
  TEMPER_ASSIGN_OR_RETURN(const Json added, ReadOptional(env, added_path));
  std::set<std::string> known, special;
  for (const AddedToken& token : out.added) known.insert(token.content);
  for (const AddedToken& token : out.additional) special.insert(token.content);
  for (const SpecialRole* role : {&out.bos, &out.eos, &out.unk, &out.pad}) {
    if (role->token) special.insert(role->token->content);
  }
  for (auto it = added.begin(); it != added.end(); ++it) {
    if (known.contains(it.key())) continue;
    if (!it->is_number_integer()) {
      return Corrupt(fmt::format("{}: the id of '{}' is not an integer", added_path, it.key()));
    }
    TEMPER_RETURN_IF_ERROR(CheckId(it->get<int64_t>(), added_path));
    AddedToken token;
    token.content = it.key();
    token.id = static_cast<int32_t>(it->get<int64_t>());
    token.special = special.contains(it.key());
    token.normalized = !token.special;
    out.added.push_back(std::move(token));
  }
  std::stable_sort(out.added.begin(), out.added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });

  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = JoinPath(folder, name);
    TEMPER_ASSIGN_OR_RETURN(const Json json, ReadOptional(env, path));
    if (!out.bos_id && !IdsOf(json, "bos_token_id").empty()) out.bos_id = IdsOf(json, "bos_token_id")[0];
    if (!out.pad_id && !IdsOf(json, "pad_token_id").empty()) out.pad_id = IdsOf(json, "pad_token_id")[0];
    for (const int32_t id : IdsOf(json, "eos_token_id")) out.eos_ids.push_back(id);
    if (json.contains("model_type")) {
      TEMPER_ASSIGN_OR_RETURN(out.model_type, StringOr(json, "model_type", "", path));
    }
  }
  return out;
}

}  // namespace temper
