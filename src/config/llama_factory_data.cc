#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "config/first_row.h"
#include "config/foreign_data.h"
#include "config/foreign_rows.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// What LLaMA-Factory calls the fields of rows, or the roles of messages, and what Temper takes them from.
struct Meant {
  std::string_view key;
  std::vector<std::string_view> read;  // the first of them is advised
  bool by_default = true;              // LLaMA-Factory reads the first, too, unless the file says otherwise
  const char* role = "";               // of a name of speakers
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
  static const std::vector<Meant> kRoles = {{"user_tag", {"human", "user"}, true, "user"},
                                            {"assistant_tag", {"gpt", "assistant"}, true, "assistant"},
                                            {"observation_tag", {"observation", "tool"}, true, "tool"},
                                            {"function_tag", {"function_call", "tool_call"}, true, "function_call"},
                                            {"system_tag", {"system"}, true, "system"}};
  return kRoles;
}

// What the fields are of which rows of preferences have more.
const std::vector<Meant>& FieldsOfPreferences(RowUse rows) {
  static const std::vector<Meant> kPairs = {{"chosen", {"chosen"}, false}, {"rejected", {"rejected"}, false}},
                                  kRatings = {{"kto_tag", {"label", "kto_tag"}, false}}, kNone;
  const RowFacts& facts = FactsOf(rows);
  return facts.two_answers ? kPairs : facts.gives == Section::kRating ? kRatings : kNone;
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
        RowRoles& roles = data.files.back().roles;
        if (!AddRole({meant->role, given}, roles).ok()) {
          data.lost.push_back(fmt::format("data set {}: its {} {}", name, it.key(), Quoted(given)));
        }
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
    if (FactsOf(rows).two_answers) {
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
    const bool known = text || (prompt == "question" && answer == "answer");        // by these names
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
  // Calls of functions are turns in ShareGPT's form alone.
  const bool calls = !TextAt(tags, "function_tag").empty() || !TextAt(tags, "observation_tag").empty();
  if (calls && TextAt(section("columns"), "messages") == "messages" && data.files.back().columns.empty()) {
    SetColumn(name, "messages", "conversations", "messages", data);
  }
  CheckSection(name, columns, {FieldsOfTurns(), preferences}, data);
  CheckSection(name, tags, {TagsOfTurns(), Roles()}, data);
}

// LLaMA-Factory puts a line break between both fields of a prompt; nothing to say where rows have one of them.
void TakeSeparator(Env& env, const OrderedJson& entry, RowUse rows, ForeignData& data) {
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
  data.separator = "\n";
}

// What no part of the entry of dataset_info.json above has said.
void CheckEntry(const std::string& name, const OrderedJson& entry, RowUse rows, ForeignData& data) {
  static const std::set<std::string> kRead = {"hf_hub_url", "file_name", "formatting",
                                              "columns",    "tags",      "num_samples"};
  for (auto it = entry.begin(); it != entry.end(); ++it) {
    if (kRead.contains(it.key()) || it.value().is_null() || it.value() == false) continue;
    if (it.key() == "split" && it.value() == "train") continue;
    if (it.key() == "ranking" && FactsOf(rows).two_answers) continue;
    const std::string given = it.value().is_string() ? it.value().get<std::string>() : DumpJson(it.value());
    data.lost.push_back(fmt::format("data set {}: its {} {}{}", name, it.key(), Quoted(given), ReasonFor(it.key())));
  }
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
  for (const std::string& name : NamesIn(names)) {
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
    TakeSeparator(env, *entry, rows, data);
  }
  return data;
}

}  // namespace temper
