#include "config/import_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "config/yaml_text.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr char kAddTokens[] = "add_tokens";

// Whether the model's tokenizer has this token, by the text of its file; nullopt: the model is not here.
std::optional<bool> HasToken(Translation& run, const std::string& token) {
  const char* const names[] = {"model_name_or_path", "base_model", "model"};
  for (const char* const name : names) {
    const ForeignSetting* const model = run.Given(name);
    if (model == nullptr) continue;
    const auto text = ReadTextFile(run.env(), JoinPath(model->Text(), "tokenizer.json"), MiB(256));
    if (!text.ok()) return std::nullopt;
    return text->find(DumpJson(OrderedJson(token))) != std::string::npos;
  }
  return std::nullopt;
}

// To those of other settings. A run uses a token that its model has as it is.
void AddTokens(Translation& run, const std::vector<std::string>& tokens, bool special, const ForeignSetting& setting) {
  OrderedJson list = OrderedJson::array();
  if (run.IsSet(kAddTokens)) {
    if (const auto before = ParseYamlValue(run.config.model.add_tokens, run.file()); before.ok()) list = *before;
    run.Forget(kAddTokens);
  }
  for (const std::string& token : tokens) {
    OrderedJson entry = token;
    if (!special) entry = {{"content", token}, {"special", false}, {"normalized", false}};
    const auto same = [&](const OrderedJson& other) {
      return other == token || (other.is_object() && other.value("content", "") == token);
    };
    if (std::none_of(list.begin(), list.end(), same)) list.push_back(std::move(entry));
  }
  run.Set(kAddTokens, DumpJson(list), setting);
}

constexpr char kHowTheyAreTrained[] =
    "rows of new tokens begin as the mean of all and are trained beside an adapter alone; with train_modules tables "
    "are trained whole";

}  // namespace

void TakeTokens(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  struct Token {
    std::string text;
    bool has_part;  // eos_token, say: most models have it
  };
  std::vector<Token> tokens;
  bool ends = setting.name == "eos_token", read = true;
  const auto add = [&](const OrderedJson& value, bool has_part) {
    if (value.is_string()) tokens.push_back({value.get<std::string>(), has_part});
    read = read && (value.is_string() || value.is_null());
  };
  if (setting.value.is_object()) {
    for (const auto& [part, value] : setting.value.items()) {
      if (part == "pad_token") continue;  // padding is never read
      ends = ends || part == "eos_token";
      if (part == "additional_special_tokens" && value.is_array()) {
        for (const OrderedJson& one : value) add(one, false);
      } else {
        add(value, true);
      }
    }
    if (tokens.empty() && read) return run.Needless(setting, "padding is never read");
  } else if (setting.value.is_array()) {
    for (const OrderedJson& value : setting.value) add(value, false);
  } else {
    add(setting.value, setting.name == "eos_token");
  }
  if (!read || tokens.empty()) return run.Lost(setting, foreign.note);
  std::vector<std::string> added, shown;
  bool open = false;
  for (const Token& token : tokens) {
    const std::optional<bool> has = HasToken(run, token.text);
    open = open || (!has && token.has_part);
    if (has == true || (!has && token.has_part)) continue;
    added.push_back(token.text);
    shown.push_back(Quoted(token.text));
  }
  const char* const end =
      ends ? "; a turn ends as the chat template ends it, and other rows with the tokenizer's own end token" : "";
  const bool special = setting.name != "tokens";
  if (!added.empty()) {
    AddTokens(run, added, special, setting);
    return run.Changed(setting, fmt::format("{} {} new: {}{}", fmt::join(shown, ", "), added.size() == 1 ? "is" : "are",
                                            kHowTheyAreTrained, end));
  }
  if (open) {
    return run.Changed(setting, fmt::format("a token that the model's tokenizer has is used as it is; add_tokens adds "
                                            "others{}",
                                            end));
  }
  const std::string sentence = fmt::format("the model's tokenizer has {}{}", tokens.size() == 1 ? "it" : "them", end);
  ends ? run.Changed(setting, sentence) : run.Needless(setting, sentence);
}

void TakeNewTokens(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  std::vector<std::string> tokens;
  bool read = true;
  const OrderedJson list = setting.value.is_array() ? setting.value : OrderedJson::array({setting.value});
  for (const OrderedJson& entry : list) {
    if (entry.is_null()) continue;
    read = read && entry.is_string();
    if (!read) break;
    const std::string text = entry.get<std::string>();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      const std::string token = text.substr(begin, comma - begin);
      const size_t first = token.find_first_not_of(' ');
      if (first != std::string::npos) {
        tokens.push_back(token.substr(first, token.find_last_not_of(' ') + 1 - first));
      }
      begin = comma + 1;
    }
  }
  if (!read || tokens.empty()) return run.Lost(setting, foreign.note);
  AddTokens(run, tokens, setting.name != kAddTokens, setting);
  run.Changed(setting, kHowTheyAreTrained);
}

void TakeFileOfTokens(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  const auto text = ReadTextFile(run.env(), setting.Text(), MiB(16));
  const auto parsed = text.ok() ? ParseYamlValue(*text, setting.Text()) : Result<OrderedJson>(text.status());
  if (!parsed.ok() || !parsed->is_object() || parsed->empty()) {
    return run.Lost(setting, foreign.note);
  }
  std::vector<std::string> tokens;
  for (const auto& [token, description] : parsed->items()) tokens.push_back(token);
  AddTokens(run, tokens, /*special=*/true, setting);
  run.Changed(setting, fmt::format("{}, not as their descriptions", kHowTheyAreTrained));
}

}  // namespace temper
