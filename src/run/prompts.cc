#include "run/prompts.h"

#include <fmt/core.h>

#include "data/open_rows.h"
#include "data/record.h"
#include "data/role_map.h"
#include "format/json.h"
#include "format/text_stream.h"

namespace temper {
namespace {

// Rows that have a prompt and lack the answer get an empty one, so that they are rows of their format.
void AddMissingAnswer(OrderedJson& row) {
  if (!row.is_object()) return;
  const auto answer = [&](const char* prompt, std::initializer_list<const char*> answers) {
    const OrderedJson* value = FindValue(row, prompt);
    if (value == nullptr) return;
    for (const char* key : answers) {
      if (FindValue(row, key) != nullptr) return;
    }
    row[*answers.begin()] = value->is_array() ? OrderedJson::array() : OrderedJson("");
  };
  answer("prompt", {"completion"});
  answer("question", {"answer"});
  answer("instruction", {"output", "response"});
}

// The fields of a row that its record does not have.
OrderedJson Others(const OrderedJson& row, const Record& record) {
  OrderedJson others = OrderedJson::object();
  if (!record.template_variables.is_null()) others[kTemplateVariables] = record.template_variables;
  for (const std::string& name : record.unread) {
    if (const OrderedJson* value = FindValue(row, name.c_str())) others[name] = *value;
  }
  return others;
}

Result<Prompt> PromptOf(OrderedJson row, const std::string& where, const RowReading& reading) {
  RenameRoles(reading.roles, row);
  AddMissingAnswer(row);
  TEMPER_ASSIGN_OR_RETURN(const RecordFormat format, DetectFormat(row, where));
  TEMPER_ASSIGN_OR_RETURN(Record record, MakeRecord(row, format, where, reading.separator));
  Prompt prompt{.where = where, .others = Others(row, record)};
  prompt.variables = std::move(record.template_variables);
  switch (record.kind) {
    case RecordKind::kText:
      prompt.text = std::move(record.text);
      return prompt;
    case RecordKind::kPrompt:
      prompt.text = PromptText(record);
      prompt.turns = AsConversation(record).messages;
      prompt.turns.erase(prompt.turns.size() - 1);
      if (!record.system.empty()) prompt.system = std::move(record.system);
      return prompt;
    case RecordKind::kMessages:
      while (!record.messages.empty() && record.messages.back().value("role", "") == "assistant") {
        record.messages.erase(record.messages.size() - 1);
      }
      if (record.messages.empty()) return Corrupt(where + ": there is no message to answer");
      for (OrderedJson& message : record.messages) message.erase("weight");
      prompt.messages = std::move(record.messages);
      prompt.tools = std::move(record.tools);
      return prompt;
    default:
      return Unsupported(where + ": input_ids are no prompt: give the text, or messages");
  }
}

Result<std::vector<Prompt>> ReadLines(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  std::vector<Prompt> prompts;
  int64_t line = 0;
  for (size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string one = text.substr(begin, end - begin);
    if (one.ends_with('\r')) one.pop_back();
    ++line;
    begin = end + 1;
    if (one.find_first_not_of(" \t") == one.npos) continue;
    prompts.push_back({.where = fmt::format("{} line {}", path, line), .text = std::move(one)});
  }
  return prompts;
}

}  // namespace

Result<std::vector<Prompt>> ReadPrompts(Env& env, const std::string& path, const RowReading& reading) {
  std::vector<Prompt> prompts;
  if (path.ends_with(".txt")) {
    TEMPER_ASSIGN_OR_RETURN(prompts, ReadLines(env, path));
  } else {
    TEMPER_ASSIGN_OR_RETURN(const auto rows, OpenRows(env, path));
    RawRow row;
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool more, rows->Next(row));
      if (!more) break;
      TEMPER_RETURN_IF_ERROR(row.error);
      const std::string where = fmt::format("{} {}", path, PlaceOfRow(rows->layout(), row));
      TEMPER_ASSIGN_OR_RETURN(OrderedJson parsed, ParseOrderedJson(row.text, where));
      TEMPER_ASSIGN_OR_RETURN(prompts.emplace_back(), PromptOf(std::move(parsed), where, reading));
    }
  }
  if (prompts.empty()) return InvalidArgument(path + " has no prompts");
  return prompts;
}

std::string AnsweredRow(const Prompt& prompt, const std::string& answer) {
  OrderedJson row = OrderedJson::object();
  if (prompt.messages.is_null()) {
    if (!prompt.system.is_null()) row["system"] = prompt.system;
    row["prompt"] = prompt.system.is_null() ? OrderedJson(prompt.text) : prompt.turns.back()["content"];
    row["completion"] = answer;
  } else {
    row["messages"] = prompt.messages;
    row["messages"].push_back({{"role", "assistant"}, {"content", answer}});
    if (!prompt.tools.is_null()) row["tools"] = prompt.tools;
  }
  for (const auto& [name, value] : prompt.others.items()) {
    if (!row.contains(name)) row[name] = value;
  }
  return DumpJson(row);
}

}  // namespace temper
