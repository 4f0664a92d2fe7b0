#include "config/foreign_data.h"

#include <fmt/core.h>

#include <algorithm>
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

// What LLaMA-Factory calls the fields of rows, or the roles of messages, and what Temper takes them from.
struct Meant {
  std::string_view key;
  std::vector<std::string_view> read;  // the first of them is advised
  bool by_default = true;              // LLaMA-Factory reads the first, too, unless the file says otherwise
};

const std::vector<Meant>& FieldsOfAlpaca() {
  static const std::vector<Meant> kFields = {{"prompt", {"instruction"}},
                                             {"query", {"input"}},
                                             {"response", {"output", "response"}},
                                             {"history", {"history"}, false},
                                             {"system", {"system"}, false}};
  return kFields;
}

const std::vector<Meant>& FieldsOfTurns() {
  static const std::vector<Meant> kFields = {
      {"messages", {"conversations", "messages"}}, {"system", {"system"}, false}, {"tools", {"tools"}, false}};
  return kFields;
}

const std::vector<Meant>& TagsOfTurns() {
  static const std::vector<Meant> kTags = {{"role_tag", {"from", "role"}}, {"content_tag", {"value", "content"}}};
  return kTags;
}

const std::vector<Meant>& Roles() {
  static const std::vector<Meant> kRoles = {{"user_tag", {"human", "user"}},
                                            {"assistant_tag", {"gpt", "assistant"}},
                                            {"observation_tag", {"observation", "tool"}},
                                            {"function_tag", {"function_call", "tool_call"}},
                                            {"system_tag", {"system"}}};
  return kRoles;
}

// Why a key of dataset_info.json has no equivalent, as far as more than that can be said.
std::string ReasonFor(const std::string& key) {
  if (key == "images" || key == "videos" || key == "audios") return ": images, video and sound are not supported";
  if (key == "chosen" || key == "rejected" || key == "kto_tag" || key == "ranking") {
    return ": only fine-tuning on given answers is supported, no preferences";
  }
  if (key == "split" || key == "subset" || key == "folder") {
    return ": a data set is one file: name it (org/name/train.jsonl)";
  }
  return "";
}

// Names each key of a section of dataset_info.json of which Temper reads something else than the file says.
void CheckSection(const std::string& name, const OrderedJson& section, const std::vector<std::vector<Meant>>& known,
                  const char* what, ForeignData& data) {
  for (auto it = section.begin(); it != section.end(); ++it) {
    const std::string given = it.value().is_string() ? it.value().get<std::string>() : it.value().dump();
    const Meant* meant = nullptr;
    for (const std::vector<Meant>& list : known) {
      for (const Meant& one : list) {
        if (one.key == it.key()) meant = &one;
      }
    }
    if (it.value().is_null()) {
      if (meant == nullptr || !meant->by_default) continue;
      data.lost.push_back(
          fmt::format("data set {}: {}: null leaves {} out, which is read here", name, it.key(), meant->read[0]));
    } else if (meant == nullptr) {
      data.lost.push_back(fmt::format("data set {}: its {} {}{}", name, it.key(), Quoted(given), ReasonFor(it.key())));
    } else if (std::find(meant->read.begin(), meant->read.end(), given) == meant->read.end()) {
      const bool role = it.key().ends_with("_tag") && it.key() != "role_tag" && it.key() != "content_tag";
      data.lost.push_back(fmt::format("data set {}: {}: rename the {} {} of its {} to {}", name, it.key(),
                                      role ? "role" : what, Quoted(given), role ? "messages" : "rows", meant->read[0]));
    }
  }
}

// Says which fields of rows must be renamed before Temper recognises them (docs/formats/data.md), and which are not
// read.
void CheckFields(const std::string& name, const OrderedJson& entry, ForeignData& data) {
  static const OrderedJson kNone = OrderedJson::object();
  const auto section = [&](const char* key) -> const OrderedJson& {
    const auto it = entry.find(key);
    return it != entry.end() && it->is_object() ? *it : kNone;
  };
  OrderedJson columns = section("columns"), tags = section("tags");
  const std::string formatting = TextAt(entry, "formatting", "alpaca");
  if (formatting == "alpaca") {
    const std::string prompt = TextAt(columns, "prompt", "instruction"), answer = TextAt(columns, "response", "output");
    const bool text = prompt == "text" && !columns.contains("response");
    const bool joined = prompt == "prompt" && answer == "completion";
    if (joined) {
      data.changed.push_back(
          fmt::format("data set {}: prompt and completion are joined as they are, without a chat "
                      "template; rename them to question and answer for one",
                      name));
    }
    const bool known = text || joined || (prompt == "question" && answer == "answer");  // by these names
    if (known) {
      columns.erase("prompt");
      columns.erase("response");
    }
    const std::vector<Meant> system = {
        {"system", {"system"}, false}};  // all that is read beside them; nothing beside a text
    CheckSection(name, columns, {!known ? FieldsOfAlpaca() : text ? std::vector<Meant>() : system}, "field", data);
    CheckSection(name, tags, {}, "field", data);
    return;
  }
  if (formatting != "sharegpt" && formatting != "openai") {
    data.lost.push_back(fmt::format("data set {}: its formatting {}", name, Quoted(formatting)));
  }
  CheckSection(name, columns, {FieldsOfTurns()}, "field", data);
  CheckSection(name, tags, {TagsOfTurns(), Roles()}, "field", data);
}

// What no part of the entry of dataset_info.json above has said.
void CheckEntry(const std::string& name, const OrderedJson& entry, ForeignData& data) {
  static const std::set<std::string> kRead = {"hf_hub_url", "file_name", "formatting",
                                              "columns",    "tags",      "num_samples"};
  for (auto it = entry.begin(); it != entry.end(); ++it) {
    if (kRead.contains(it.key()) || it.value().is_null() || it.value() == false) continue;
    if (it.key() == "split" && it.value() == "train") continue;
    const std::string given = it.value().is_string() ? it.value().get<std::string>() : it.value().dump();
    data.lost.push_back(fmt::format("data set {}: its {} {}{}", name, it.key(), Quoted(given), ReasonFor(it.key())));
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
    if (const auto it = entry->find("num_samples"); it != entry->end() && !it->is_null()) {
      if (it->is_number_integer() && *it > 0) {
        data.files.back().max_samples = it->get<int64_t>();
        data.changed.push_back(
            fmt::format("data set {}: its num_samples are the first rows, not random ones (max_samples)", name));
      } else {
        data.lost.push_back(fmt::format("data set {}: its num_samples {}", name, Quoted(it->dump())));
      }
    }
    CheckEntry(name, *entry, data);
    CheckFields(name, *entry, data);
  }
  return data;
}

ForeignData ListedData(const OrderedJson& list) {
  // What needs nothing: how files are loaded, and the fields of rows under the names that Temper knows.
  static const std::set<std::string> kRead = {"path", "data_files", "type"};
  static const std::set<std::string> kNeedless = {"ds_type", "trust_remote_code", "preprocess_shards"};
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
                                               "train_on_eos: turn",
                                               "train_on_eot: turn",
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
      if (kUsual.contains(setting)) continue;
      const bool ends = it.key() == "train_on_eos" || it.key() == "train_on_eot";
      const std::string sentence =
          fmt::format("data set {}: {}{}", path, setting,
                      ends ? ": the token that ends a turn counts where the turn does, in each of them" : "");
      (kNeedless.contains(it.key()) ? data.needless : data.lost).push_back(sentence);
    }
  }
  return data;
}

}  // namespace temper
