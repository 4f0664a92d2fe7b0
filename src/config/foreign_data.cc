#include "config/foreign_data.h"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "format/quoted.h"

namespace temper {
namespace {

std::string TextAt(const OrderedJson& object, const char* key, const std::string& fallback = "") {
  if (!object.is_object()) return fallback;
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : fallback;
}

std::vector<std::string> Names(const OrderedJson& value) {
  std::vector<std::string> names;
  if (value.is_array()) {
    for (const OrderedJson& one : value) {
      if (one.is_string()) names.push_back(one.get<std::string>());
    }
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    for (size_t from = 0; from <= text.size();) {
      const size_t to = std::min(text.find(',', from), text.size());
      std::string name = text.substr(from, to - from);
      name.erase(0, name.find_first_not_of(' '));
      name.erase(name.find_last_not_of(' ') + 1);
      if (!name.empty()) names.push_back(name);
      from = to + 1;
    }
  }
  return names;
}

// Says which fields of rows must be renamed before Temper recognises them (docs/formats/data.md).
void CheckFields(const std::string& name, const OrderedJson& entry, ForeignData& data) {
  static const OrderedJson kNone = OrderedJson::object();
  const auto section = [&](const char* key) -> const OrderedJson& {
    const auto it = entry.find(key);
    return it != entry.end() && it->is_object() ? *it : kNone;
  };
  const OrderedJson &columns = section("columns"), &tags = section("tags");
  const std::string formatting = TextAt(entry, "formatting", "alpaca");
  std::vector<std::pair<std::string, std::string>> renamed;  // (in the rows, as Temper knows it)
  const auto expect = [&](const std::string& given, const std::string& ours) {
    if (given != ours) renamed.emplace_back(given, ours);
  };
  if (formatting == "alpaca") {
    const std::string prompt = TextAt(columns, "prompt", "instruction"), answer = TextAt(columns, "response", "output");
    if (prompt == "text" && !columns.contains("response")) return;  // plain text
    if (prompt == "prompt" && answer == "completion") {
      data.changed.push_back(
          fmt::format("data set {}: prompt and completion are joined as they are, without a chat "
                      "template; rename them to question and answer for one",
                      name));
      return;
    }
    if (prompt == "question" && answer == "answer") return;
    expect(prompt, "instruction");
    expect(TextAt(columns, "query", "input"), "input");
    if (answer != "response") expect(answer, "output");
  } else {
    // sharegpt rows have conversations of {from, value}; openai rows messages of {role, content}. Temper knows both.
    const bool openai = formatting == "openai" || TextAt(tags, "role_tag") == "role";
    const std::string turns = TextAt(columns, "messages", formatting == "openai" ? "messages" : "conversations");
    if (turns != "messages" && turns != "conversations") expect(turns, openai ? "messages" : "conversations");
    const std::string role = TextAt(tags, "role_tag", openai ? "role" : "from");
    if (role != "role") expect(role, "from");
    const std::string content = TextAt(tags, "content_tag", openai ? "content" : "value");
    if (content != "content") expect(content, "value");
  }
  for (const auto& [theirs, ours] : renamed) {
    data.lost.push_back(fmt::format("data set {}: rename the field {} of its rows to {}", name, Quoted(theirs), ours));
  }
}

// Axolotl's prompt styles that Temper reads as Axolotl does, or in its own way.
void CheckType(const std::string& name, const OrderedJson& entry, ForeignData& data) {
  const auto type = entry.find("type");
  if (type == entry.end() || type->is_null()) return;
  if (!type->is_string()) {
    data.lost.push_back(fmt::format(
        "data set {}: a prompt style of your own; write rows with prompt and completion, which are joined as they are",
        name));
    return;
  }
  const std::string style = type->get<std::string>();
  const std::string kind = style.substr(0, style.find_first_of(".:"));
  if (kind == "chat_template" || kind == "completion" || kind == "sharegpt" || kind == "pretrain") return;
  if (kind == "alpaca" || kind == "alpaca_chat") {
    data.changed.push_back(
        fmt::format("data set {}: Axolotl's {} puts an English sentence before each instruction; here the model's chat "
                    "template is used, or the plain text where it has none",
                    name, style));
    return;
  }
  data.changed.push_back(fmt::format(
      "data set {}: the style {} is not known; rows are read by their fields (temper data preview shows how)", name,
      Quoted(style)));
}

// The 1000 of "train[:1000]".
std::optional<int64_t> FirstRowsOf(std::string_view split) {
  constexpr std::string_view kBegin = "train[:";
  if (!split.starts_with(kBegin) || !split.ends_with(']')) return std::nullopt;
  split = split.substr(kBegin.size(), split.size() - kBegin.size() - 1);
  int64_t rows = 0;
  const auto [end, error] = std::from_chars(split.data(), split.data() + split.size(), rows);
  if (error != std::errc() || end != split.data() + split.size() || rows < 1) return std::nullopt;
  return rows;
}

}  // namespace

ForeignData LlamaFactoryData(Env& env, const OrderedJson& names, const std::string& dataset_dir,
                             const std::string& file) {
  ForeignData data;
  // LLaMA-Factory is started in its own folder; its examples lie two folders below that.
  std::vector<std::string> folders = {dataset_dir};
  std::string above = FolderOf(file);
  for (int i = 0; i < 3; ++i, above = JoinPath(above, "..")) folders.push_back(JoinPath(above, dataset_dir));
  std::string folder;
  OrderedJson info = OrderedJson::object();
  for (const std::string& candidate : folders) {
    const std::string path = JoinPath(candidate, "dataset_info.json");
    if (!env.IsFile(path)) continue;
    const auto text = ReadTextFile(env, path, MiB(16));
    auto parsed = text.ok() ? ParseOrderedJson(*text, path) : Result<OrderedJson>(text.status());
    if (!parsed.ok()) {
      data.lost.push_back(parsed.status().message());
    } else if (parsed->is_object()) {
      folder = candidate;
      info = *std::move(parsed);
    }
    break;
  }
  for (const std::string& name : Names(names)) {
    if (folder.empty()) {
      data.files.push_back({.path = name});
      data.lost.push_back(fmt::format("data set {}: no dataset_info.json was found in {}; write the path of its file",
                                      name, Quoted(dataset_dir)));
      continue;
    }
    const auto entry = info.find(name);
    if (entry == info.end() || !entry->is_object()) {
      data.files.push_back({.path = name});
      data.lost.push_back(fmt::format("data set {}: {} has no such entry; write the path of its file", name,
                                      JoinPath(folder, "dataset_info.json")));
      continue;
    }
    const std::string hub = TextAt(*entry, "hf_hub_url"), local = TextAt(*entry, "file_name");
    if (hub.empty() && local.empty()) {
      data.lost.push_back(fmt::format("data set {}: neither a file nor a data set of the Hugging Face Hub", name));
      continue;
    }
    data.files.push_back({.path = local.empty() ? hub : JoinPath(folder, local)});
    for (const char* key : {"subset", "folder", "num_samples", "ranking"}) {
      const auto it = entry->find(key);
      if (it == entry->end() || it->is_null() || *it == false) continue;
      data.lost.push_back(fmt::format("data set {}: its {}", name, key));
    }
    CheckFields(name, *entry, data);
  }
  return data;
}

ForeignData ListedData(const OrderedJson& list) {
  // What needs nothing: how files are loaded, and the fields of rows under the names that Temper knows.
  static const std::set<std::string> kRead = {"path",         "data_files",        "type",
                                              "ds_type",      "trust_remote_code", "preprocess_shards",
                                              "train_on_eos", "train_on_eot"};
  static const std::set<std::string> kUsual = {"split: train",
                                               "field_messages: messages",
                                               "field_messages: conversations",
                                               "message_field_role: role",
                                               "message_field_role: from",
                                               "message_field_content: content",
                                               "message_field_content: value",
                                               "message_property_mappings: {\"role\":\"role\",\"content\":\"content\"}",
                                               "message_property_mappings: {\"role\":\"from\",\"content\":\"value\"}",
                                               "roles_to_train: [\"assistant\"]",
                                               "roles_to_train: [\"gpt\",\"assistant\"]",
                                               "roles_to_train: [\"assistant\",\"gpt\"]",
                                               "field: text",
                                               "text_column: text",
                                               "chat_template: tokenizer_default"};
  ForeignData data;
  const OrderedJson entries = list.is_array() ? list : OrderedJson::array({list});
  for (const OrderedJson& entry : entries) {
    if (entry.is_string()) {
      data.files.push_back({.path = entry.get<std::string>()});
      continue;
    }
    const std::string path = TextAt(entry, "path");
    if (path.empty()) {
      data.lost.emplace_back("a data set without a path");
      continue;
    }
    // "json" names a loader; the files are then data_files.
    const bool loader = path == "json" || path == "csv" || path == "text" || path == "parquet";
    std::vector<std::string> files;
    if (const auto it = entry.find("data_files"); it != entry.end()) files = Names(*it);
    if (files.empty()) files = {path};
    const std::optional<int64_t> first = FirstRowsOf(TextAt(entry, "split"));
    for (const std::string& one : files) {
      data.files.push_back({.path = loader || one == path ? one : path + "/" + one, .max_samples = first});
    }
    CheckType(path, entry, data);
    for (auto it = entry.begin(); it != entry.end(); ++it) {
      if (kRead.contains(it.key()) || it.value().is_null() || it.value() == false) continue;
      if (first && it.key() == "split") continue;
      const std::string value = it.value().is_string() ? it.value().get<std::string>() : it.value().dump();
      const std::string setting = fmt::format("{}: {}", it.key(), value);
      if (!kUsual.contains(setting)) data.lost.push_back(fmt::format("data set {}: {}", path, setting));
    }
  }
  return data;
}

}  // namespace temper
