#include "config/foreign_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "config/first_row.h"
#include "config/foreign_styles.h"
#include "format/data_file_pattern.h"
#include "format/data_split.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// An empty text counts as none.
std::string TextAt(const OrderedJson& object, const char* key, const std::string& fallback = "") {
  if (!object.is_object()) return fallback;
  const auto it = object.find(key);
  const bool given = it != object.end() && it->is_string() && !it->get_ref<const std::string&>().empty();
  return given ? it->get<std::string>() : fallback;
}

// Reads a field of the last file's rows from a column, or says that it cannot: `theirs` is what the tool calls it.
void SetColumn(const std::string& name, const std::string& theirs, std::string field, const std::string& column,
               ForeignData& data) {
  if (AddColumn({std::move(field), column}, data.files.back().columns).ok()) return;
  data.lost.push_back(fmt::format("data set {}: its {} {}", name, theirs, Quoted(column)));
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
      {"messages", {"conversations"}}, {"system", {"system"}, false}, {"tools", {"tools"}, false}};
  return kFields;
}

const std::vector<Meant>& TagsOfTurns() {
  static const std::vector<Meant> kTags = {{"role_tag", {"from"}}, {"content_tag", {"value"}}};
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

// What the fields are of which rows of preferences have more.
const std::vector<Meant>& FieldsOfPreferences(RowUse rows) {
  static const std::vector<Meant> kPairs = {{"chosen", {"chosen"}, false}, {"rejected", {"rejected"}, false}},
                                  kRatings = {{"kto_tag", {"label", "kto_tag"}, false}}, kNone;
  return rows == RowUse::kPairs || rows == RowUse::kRanked ? kPairs : rows == RowUse::kRated ? kRatings : kNone;
}

// Why a key of dataset_info.json has no equivalent, as far as more than that can be said.
std::string ReasonFor(const std::string& key) {
  if (key == "images" || key == "videos" || key == "audios") return ": images, video and sound are not supported";
  if (key == "chosen" || key == "rejected" || key == "kto_tag" || key == "ranking") {
    return ": the recipe is for given answers; one with stage: dpo, kto or rm is for such data";
  }
  if (key == "split" || key == "subset" || key == "folder") {
    return ": a data set is one file: name it (org/name/train.jsonl)";
  }
  return "";
}

// Sets the columns of the last file from which conversations are read, whose list and keys the tool calls so. The
// reader of ShareGPT's turns knows all names of speakers, and both pairs of keys.
void SetTurns(const std::string& name, const std::string& list, const std::string& role, const std::string& content,
              ForeignData& data) {
  const auto set = [&](const char* field, const std::string& column) { SetColumn(name, field, field, column, data); };
  if (list == "messages" && role == "role" && content == "content") return;
  if (list != "conversations") set("conversations", list);
  if (role != "from" && role != "role") set("conversations.from", role);
  if (content != "value" && content != "content") set("conversations.value", content);
}

// Names each key of a section of dataset_info.json of which Temper reads something else than the file says, where
// `columns` cannot say so, too.
void CheckSection(const std::string& name, const OrderedJson& section, const std::vector<std::vector<Meant>>& known,
                  ForeignData& data) {
  for (auto it = section.begin(); it != section.end(); ++it) {
    const std::string given = it.value().is_string() ? it.value().get<std::string>() : DumpJson(it.value());
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
      if (it.key().ends_with("_tag") && it.key() != "kto_tag" && !given.empty()) {
        data.lost.push_back(fmt::format("data set {}: {}: rename the role {} of its messages to {}", name, it.key(),
                                        Quoted(given), meant->read[0]));
      } else {
        SetColumn(name, it.key(), std::string(meant->read[0]), given, data);
      }
    }
  }
}

// Sets the columns of the last file from which Temper reads what the entry says, and says what is not read.
void CheckFields(const std::string& name, const OrderedJson& entry, RowUse rows, ForeignData& data) {
  static const OrderedJson kNone = OrderedJson::object();
  const auto section = [&](const char* key) -> const OrderedJson& {
    const auto it = entry.find(key);
    return it != entry.end() && it->is_object() ? *it : kNone;
  };
  OrderedJson columns = section("columns"), tags = section("tags");
  const std::string formatting = TextAt(entry, "formatting", "alpaca");
  const std::vector<Meant>& preferences = FieldsOfPreferences(rows);
  if (formatting == "alpaca" && !preferences.empty()) {
    std::vector<Meant> fields = FieldsOfAlpaca();
    if (rows != RowUse::kRated) {
      columns.erase("response");  // the answers are others
      std::erase_if(fields, [](const Meant& field) { return field.key == "response"; });
    }
    CheckSection(name, columns, {fields, preferences}, data);
    CheckSection(name, tags, {}, data);
    return;
  }
  if (formatting == "alpaca") {
    const std::string prompt = TextAt(columns, "prompt", "instruction"), answer = TextAt(columns, "response", "output");
    const bool text =
        !TextAt(columns, "prompt").empty() && TextAt(columns, "response").empty();  // LLaMA-Factory reads no other
    const bool joined = prompt == "prompt" && answer == "completion";
    if (joined) {
      data.changed.push_back(
          fmt::format("data set {}: prompt and completion are joined as they are, without a chat "
                      "template; rename them to question and answer for one",
                      name));
    }
    const bool known = text || joined || (prompt == "question" && answer == "answer");  // by these names
    if (known) {
      if (text && prompt != "text") data.files.back().columns = {{"text", prompt}};
      columns.erase("prompt");
      columns.erase("response");
    }
    const std::vector<Meant> system = {
        {"system", {"system"}, false}};  // all that is read beside them; nothing beside a text
    CheckSection(name, columns, {!known ? FieldsOfAlpaca() : text ? std::vector<Meant>() : system}, data);
    CheckSection(name, tags, {}, data);
    return;
  }
  if (formatting != "sharegpt" && formatting != "openai") {
    data.lost.push_back(fmt::format("data set {}: its formatting {}", name, Quoted(formatting)));
  }
  SetTurns(name, TextAt(columns, "messages", "conversations"), TextAt(tags, "role_tag", "from"),
           TextAt(tags, "content_tag", "value"), data);
  const auto drop = [](OrderedJson& from, const char* key) {
    if (!TextAt(from, key).empty()) from.erase(key);
  };
  drop(columns, "messages");
  drop(tags, "role_tag");
  drop(tags, "content_tag");
  CheckSection(name, columns, {FieldsOfTurns(), preferences}, data);
  CheckSection(name, tags, {TagsOfTurns(), Roles()}, data);
}

// LLaMA-Factory puts a line break between both fields of a prompt; nothing to say where rows have one of them.
void CheckJoined(Env& env, const std::string& name, const OrderedJson& entry, RowUse rows, ForeignData& data) {
  static const OrderedJson kNone = OrderedJson::object();
  const auto it = entry.find("columns");
  const OrderedJson& columns = it != entry.end() && it->is_object() ? *it : kNone;
  const bool text =
      FieldsOfPreferences(rows).empty() && !TextAt(columns, "prompt").empty() && TextAt(columns, "response").empty();
  if (TextAt(entry, "formatting", "alpaca") != "alpaca" || text) return;
  const auto query = columns.find("query");
  if (query != columns.end() && query->is_null()) return;
  const auto fields = FieldsOfFirstRow(env, data.files.back().path);
  if (fields && !fields->contains(TextAt(columns, "query", "input"))) return;
  data.changed.push_back(
      fmt::format("data set {}: its instruction and input are joined by an empty line; LLaMA-Factory puts a line break "
                  "between them",
                  name));
}

// What no part of the entry of dataset_info.json above has said.
void CheckEntry(const std::string& name, const OrderedJson& entry, RowUse rows, ForeignData& data) {
  static const std::set<std::string> kRead = {"hf_hub_url", "file_name", "formatting",
                                              "columns",    "tags",      "num_samples"};
  for (auto it = entry.begin(); it != entry.end(); ++it) {
    if (kRead.contains(it.key()) || it.value().is_null() || it.value() == false) continue;
    if (it.key() == "split" && it.value() == "train") continue;
    if (it.key() == "ranking" && (rows == RowUse::kPairs || rows == RowUse::kRanked)) continue;
    const std::string given = it.value().is_string() ? it.value().get<std::string>() : DumpJson(it.value());
    data.lost.push_back(fmt::format("data set {}: its {} {}{}", name, it.key(), Quoted(given), ReasonFor(it.key())));
  }
}

// Axolotl's prompt styles that Temper reads as Axolotl does, or in its own way.
void CheckType(const std::string& name, const OrderedJson& entry, RowUse rows, ForeignData& data) {
  const auto type = entry.find("type");
  if (type == entry.end() || type->is_null()) return;
  if (!type->is_string()) {
    const bool plain = !FieldsOfPreferences(rows).empty() && type->is_object() &&
                       std::none_of(type->begin(), type->end(), [](const OrderedJson& value) {
                         return value.is_string() && value.get_ref<const std::string&>().find('{') != std::string::npos;
                       });
    if (plain) return;  // the fields as they are, joined
    data.lost.push_back(fmt::format(
        "data set {}: a prompt style of your own; here the model's chat template is used, or the plain text "
        "where it has none (a text of your own is row_template)",
        name));
    return;
  }
  const std::string style = type->get<std::string>();
  if (!FieldsOfPreferences(rows).empty()) {
    const ForeignStyle known = StyleOf(style, rows);
    if (!known.changed.empty()) data.changed.push_back(fmt::format("data set {}: {}", name, known.changed));
    if (!known.chat_template.empty()) data.chat_template = known.chat_template;
    if (known.known) return;
  }
  const std::string kind = style.substr(0, style.find_first_of(".:"));
  if (kind == "chat_template" || kind == "completion" || kind == "sharegpt" || kind == "pretrain") return;
  if (style == "alpaca") {
    data.chat_template = "alpaca";
    data.changed.push_back(fmt::format(
        "data set {}: chat_template: alpaca writes what Axolotl's alpaca does, but for a row with an input, "
        "which has a heading of its own there",
        name));
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
  if (!FieldsOfPreferences(rows).empty()) {
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

// Whether Axolotl's roles, {user: [human, user], ...}, say what is read anyway. Messages have the names of chat
// templates; turns also those of ShareGPT.
bool AreUsualRoles(const OrderedJson& roles, bool as_messages) {
  static const std::set<std::string> kOfTurns = {"user: human", "assistant: gpt", "assistant: model",
                                                 "tool: observation", "system: developer"};
  if (!roles.is_object()) return false;
  for (const auto& [role, value] : roles.items()) {
    const std::vector<std::string> names = Names(value);
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

ForeignData LlamaFactoryData(Env& env, const OrderedJson& names, const std::string& dataset_dir,
                             const std::string& file, RowUse rows) {
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
        data.lost.push_back(fmt::format("data set {}: its num_samples {}", name, Quoted(DumpJson(*it))));
      }
    }
    CheckEntry(name, *entry, rows, data);
    CheckFields(name, *entry, rows, data);
    CheckJoined(env, name, *entry, rows, data);
  }
  return data;
}

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
    const std::string split = TextAt(entry, "split", "train");
    const bool found_split = files.empty() && !(files = FilesIn(env, path, split)).empty();
    if (files.empty()) files = {path};
    const std::optional<int64_t> first = FirstRowsOf(split);
    std::set<std::string> renamed;
    const auto [columns, lost] = ColumnsOf(path, entry, rows, renamed);
    data.lost.insert(data.lost.end(), lost.begin(), lost.end());
    for (const std::string& one : files) {
      data.files.push_back({.path = loader || found_split || one == path ? one : path + "/" + one,
                            .max_samples = first,
                            .columns = columns});
    }
    CheckType(path, entry, rows, data);
    const bool as_messages = TextAt(entry, "field_messages", "messages") == "messages" &&
                             !TextAt(entry, "type").starts_with("sharegpt") && !FindColumn(columns, "conversations");
    for (auto it = entry.begin(); it != entry.end(); ++it) {
      if (kRead.contains(it.key()) || renamed.contains(it.key()) || it.value().is_null() || it.value() == false)
        continue;
      if ((first || found_split) && it.key() == "split") continue;
      if (it.key() == "roles" && AreUsualRoles(it.value(), as_messages)) continue;
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
