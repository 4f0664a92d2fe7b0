#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "config/first_row.h"
#include "config/foreign_data.h"
#include "config/foreign_rows.h"
#include "config/foreign_styles.h"
#include "config/user_format.h"
#include "format/data_file_pattern.h"
#include "format/data_split.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// Axolotl's prompt styles that Temper reads as Axolotl does, or in its own way.
// `several`: there are other data sets.
void CheckType(Env& env, const std::string& name, const OrderedJson& entry, RowUse rows, bool several,
               ForeignData& data) {
  const auto type = entry.find("type");
  if (type == entry.end() || type->is_null()) return;
  if (!type->is_string()) {
    const bool plain = FactsOf(rows).prefers() && type->is_object() &&
                       std::none_of(type->begin(), type->end(), [](const OrderedJson& value) {
                         return value.is_string() && value.get_ref<const std::string&>().find('{') != std::string::npos;
                       });
    if (plain) return;  // the fields as they are, joined
    data.lost.push_back(fmt::format(
        "data set {}: a prompt style of your own that is not that of all data sets, or that no row_template can write; "
        "here the run's chat template is used, or the plain text where it has none",
        name));
    return;
  }
  const std::string style = type->get<std::string>();
  if (FactsOf(rows).prefers()) {
    const ForeignStyle known = StyleOf(style, rows);
    if (!known.changed.empty()) data.changed.push_back(fmt::format("data set {}: {}", name, known.changed));
    if (!known.chat_template.empty()) data.chat_template = known.chat_template;
    if (known.known) return;
  }
  const std::string kind = style.substr(0, style.find_first_of(".:"));
  if (kind == "chat_template" || kind == "completion" || kind == "sharegpt" || kind == "pretrain") return;
  if (style == "alpaca") {
    if (several) {
      data.changed.push_back(fmt::format(
          "data set {}: the style alpaca, with its separator, counts for all data sets of the run here", name));
    }
    data.chat_template = "alpaca";
    const auto fields = FieldsOfFirstRow(env, data.files.back().path);
    if (!fields || fields->contains("input")) data.separator = "\n\n### Input:\n";  // the template knows it
    return;
  }
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

// What Axolotl calls the fields of rows, beside messages, and what they are here.
constexpr std::pair<const char*, const char*> kFieldsOfAxolotl[] = {{"field_instruction", "instruction"},
                                                                    {"field_input", "input"},
                                                                    {"field_output", "output"},
                                                                    {"field_system", "system"},
                                                                    {"field_tools", "tools"},
                                                                    {"field", "text"},
                                                                    {"text_column", "text"}};
// Of preferences.
constexpr std::pair<const char*, const char*> kPreferencesOfAxolotl[] = {{"field_prompt", "prompt"},
                                                                         {"field_chosen", "chosen"},
                                                                         {"field_rejected", "rejected"},
                                                                         {"field_completion", "completion"},
                                                                         {"field_label", "label"}};

// The columns of an entry of Axolotl's, and what of it cannot be read; its keys that they translate are added to
// `read`.
std::pair<RowColumns, std::vector<std::string>> ColumnsOf(const std::string& name, const OrderedJson& entry,
                                                          RowUse rows, std::set<std::string>& read) {
  ForeignData found{.files = {DataSource()}};
  RowColumns& columns = found.files[0].columns;
  const auto type = entry.find("type");
  std::vector<std::pair<const char*, const char*>> fields(std::begin(kFieldsOfAxolotl), std::end(kFieldsOfAxolotl));
  if (FactsOf(rows).prefers()) {
    fields.insert(fields.end(), std::begin(kPreferencesOfAxolotl), std::end(kPreferencesOfAxolotl));
    columns = StyleOf(TextAt(entry, "type"), rows).columns;
  }
  for (const auto& [key, field] : fields) {
    for (const OrderedJson* section : {&entry, type == entry.end() ? nullptr : &*type}) {
      const std::string column = section ? TextAt(*section, key) : "";
      if (column.empty()) continue;
      read.insert(key);
      if (column != field) SetColumn(name, key, field, column, found);
    }
  }
  const auto mappings = entry.find("message_property_mappings");
  const bool mapped = mappings != entry.end() && mappings->is_object();
  const std::string style = TextAt(entry, "type");
  const std::string list =
      TextAt(entry, "field_messages", style.starts_with("sharegpt") ? "conversations" : "messages");
  const auto key_of = [&](const char* key, const char* former) {
    return TextAt(mapped ? *mappings : OrderedJson(), key, TextAt(entry, former, key));
  };
  if (mapped || entry.contains("field_messages") || entry.contains("message_field_role") ||
      entry.contains("message_field_content")) {
    SetTurns(name, list, key_of("role", "message_field_role"), key_of("content", "message_field_content"), found);
    for (const char* key : {"field_messages", "message_field_role", "message_field_content"}) {
      if (!TextAt(entry, key).empty()) read.insert(key);
    }
  }
  if (!mapped) return {columns, found.lost};
  bool all = true;
  const bool as_messages = !FindColumn(columns, "conversations") && list == "messages";
  for (const auto& [key, column] : mappings->items()) {
    const bool named = !key.empty() && column.is_string() && !column.get_ref<const std::string&>().empty();
    all = all && named;
    if (key == "role" || key == "content" || !named || column == key) continue;
    const std::string field = fmt::format("{}.{}", as_messages ? "messages" : "conversations", key);
    SetColumn(name, key, field, column.get<std::string>(), found);
  }
  if (all) read.insert("message_property_mappings");
  return {columns, found.lost};
}

// The template that makes a text of the rows of all entries, whose styles are their own; empty: there is none.
std::string SharedRowTemplate(const OrderedJson& entries, RowUse rows) {
  std::optional<std::string> shared;
  for (const OrderedJson& entry : entries) {
    const auto type = entry.is_object() ? entry.find("type") : entry.end();
    if (FactsOf(rows).prefers() || !entry.is_object() || type == entry.end()) return "";
    const auto made = RowTemplateOf(*type);
    if (!made || shared.value_or(*made) != *made) return "";
    shared = made;
  }
  return shared.value_or("");
}

// Adds what Axolotl's roles, {user: [human, user], ...}, call speakers to the files. False: not all can be said.
bool AddRoles(const OrderedJson& roles, RowRoles& names) {
  if (!roles.is_object()) return false;
  RowRoles added = names;
  for (const auto& [role, value] : roles.items()) {
    const std::vector<std::string> of_role = NamesIn(value);
    if (of_role.empty()) return false;
    for (const std::string& name : of_role) {
      if (name != role && !AddRole({role, name}, added).ok()) return false;
      if (name == role && !IsRole(role)) return false;
    }
  }
  names = std::move(added);
  return true;
}

// Whether Axolotl's roles, {user: [human, user], ...}, say what is read anyway. Messages have the names of chat
// templates; turns also those of ShareGPT.
bool AreUsualRoles(const OrderedJson& roles, bool as_messages) {
  static const std::set<std::string> kOfTurns = {"user: human", "assistant: gpt", "assistant: model",
                                                 "tool: observation", "system: developer"};
  if (!roles.is_object()) return false;
  for (const auto& [role, value] : roles.items()) {
    const std::vector<std::string> names = NamesIn(value);
    if (names.empty()) return false;
    for (const std::string& name : names) {
      const bool known = name == role || (!as_messages && kOfTurns.contains(fmt::format("{}: {}", role, name)));
      if (!known) return false;
    }
  }
  return true;
}

// The files of the split in a folder, where their names say which they are of.
std::vector<std::string> FilesIn(Env& env, const std::string& folder, const std::string& split) {
  if (!env.IsFolder(folder)) return {};
  const auto files = DataFilesOf(env, folder, "data");
  if (!files.ok()) return {};
  return FilesOfSplit(*files, split.substr(0, split.find('[')));
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

ForeignData ListedData(Env& env, const OrderedJson& list, RowUse rows) {
  // What needs nothing: how files are loaded, and what Temper does anyway.
  static const std::set<std::string> kRead = {"path", "data_files", "type"};
  static const std::set<std::string> kNeedless = {"ds_type", "trust_remote_code", "preprocess_shards"};
  static const std::set<std::string> kUsual = {"split: train",
                                               "roles_to_train: [\"assistant\"]",
                                               "roles_to_train: [\"gpt\",\"assistant\"]",
                                               "roles_to_train: [\"assistant\",\"gpt\"]",
                                               "train_on_eos: turn",
                                               "train_on_eot: turn",
                                               "chat_template: tokenizer_default"};
  ForeignData data;
  const OrderedJson entries = list.is_array() ? list : OrderedJson::array({list});
  data.row_template = SharedRowTemplate(entries, rows);
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
    if (const auto it = entry.find("data_files"); it != entry.end()) files = NamesIn(*it);
    const std::string split = TextAt(entry, "split", "train");
    const bool found_split = files.empty() && !(files = FilesIn(env, path, split)).empty();
    if (files.empty()) files = {path};
    const std::optional<int64_t> first = FirstRowsOf(split);
    std::set<std::string> renamed;
    auto [columns, lost] = ColumnsOf(path, entry, rows, renamed);
    if (!data.row_template.empty()) columns.clear();  // it has them under their own names
    data.lost.insert(data.lost.end(), lost.begin(), lost.end());
    const bool as_messages = TextAt(entry, "field_messages", "messages") == "messages" &&
                             !TextAt(entry, "type").starts_with("sharegpt") && !FindColumn(columns, "conversations");
    RowRoles roles;
    const auto given = entry.find("roles");
    const bool names = given != entry.end() && !AreUsualRoles(*given, as_messages) && AddRoles(*given, roles);
    for (const std::string& one : files) {
      data.files.push_back({.path = loader || found_split || one == path ? one : path + "/" + one,
                            .max_samples = first,
                            .columns = columns,
                            .roles = roles});
    }
    if (data.row_template.empty()) CheckType(env, path, entry, rows, entries.size() > 1, data);
    for (auto it = entry.begin(); it != entry.end(); ++it) {
      if (kRead.contains(it.key()) || renamed.contains(it.key()) || it.value().is_null() || it.value() == false)
        continue;
      if ((first || found_split) && it.key() == "split") continue;
      if (it.key() == "roles" && (names || AreUsualRoles(it.value(), as_messages))) continue;
      const std::string value = it.value().is_string() ? it.value().get<std::string>() : DumpJson(it.value());
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
