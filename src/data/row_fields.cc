#include "data/row_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "objective/objective.h"

namespace temper {
namespace {

bool IsEmptyValue(const OrderedJson& value) {
  if (value.is_null() || (value.is_structured() && value.empty())) return true;
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return text.empty() || text == "[]";  // a table's cell
}

const OrderedJson* FindFilled(const OrderedJson& row, const char* key) {
  const auto it = row.find(key);
  return it == row.end() || IsEmptyValue(*it) ? nullptr : &*it;
}

bool IsConversationFormat(RecordFormat format) {
  return format == RecordFormat::kMessages || format == RecordFormat::kConversations;
}

bool SaysFalse(const OrderedJson& value) {
  return value == false || value == "false" || value == "False";
}

// HotpotQA's is a table, which is not read.
bool HasTextOfContext(const OrderedJson& row) {
  const OrderedJson* context = FindFilled(row, "context");
  return context && context->is_string();
}

// A conversation with a system message of its own is not given the row's.
bool BeginsWithSystem(const OrderedJson* turns) {
  if (!turns || !turns->is_array() || !turns->front().is_object()) return false;
  const OrderedJson& first = turns->front();
  return first.value("role", OrderedJson()) == "system" || first.value("from", OrderedJson()) == "system";
}

std::vector<std::string_view> FieldsOf(RecordFormat format, const OrderedJson& row) {
  switch (format) {
    case RecordFormat::kTokens:
      return {"input_ids", "labels", "attention_mask"};
    case RecordFormat::kMessages:
    case RecordFormat::kConversations: {
      const char* turns = format == RecordFormat::kMessages ? "messages" : "conversations";
      if (BeginsWithSystem(FindFilled(row, turns))) return {turns, "tools", "chat_template_kwargs"};
      return {turns, "tools", "system", "chat_template_kwargs"};
    }
    case RecordFormat::kPromptCompletion:
      if (const OrderedJson* prompt = FindFilled(row, "prompt"); !prompt || !prompt->is_array()) {
        return {"prompt", "completion", "system"};
      }
      return {"prompt", "completion", "tools", "system", "chat_template_kwargs"};
    case RecordFormat::kQuestionAnswer: {
      std::vector<std::string_view> fields = {"question", "answer", "system", "chat_template_kwargs"};
      if (HasTextOfContext(row)) fields.push_back("context");
      return fields;
    }
    case RecordFormat::kInstruction: {
      std::vector<std::string_view> fields = {"instruction", "input", "system", "chat_template_kwargs",
                                              FindFilled(row, "output") ? "output" : "response"};
      if (HasTextOfContext(row)) fields.push_back("context");
      if (FindFilled(row, "history")) fields.insert(fields.end(), {"history", "tools"});
      return fields;
    }
    case RecordFormat::kText:
    case RecordFormat::kTextFile:
    case RecordFormat::kFields:
    case RecordFormat::kPair:
      break;
  }
  return {"text"};
}

// What the chosen answer belongs into.
std::string_view PlaceOfAnswer(RecordFormat format) {
  if (format == RecordFormat::kMessages) return "as the last of 'messages', the assistant's";
  if (format == RecordFormat::kConversations) return "as the last of 'conversations', from gpt";
  return "as the row's one answer";
}

}  // namespace

std::vector<std::string> UnreadFields(const OrderedJson& row, RecordFormat format) {
  const std::vector<std::string_view> read = FieldsOf(format, row);
  std::vector<std::string> unread;
  for (const auto& [key, value] : row.items()) {
    if (key == "weight" || IsEmptyValue(value)) continue;
    if (std::find(read.begin(), read.end(), key) == read.end()) unread.push_back(key);
  }
  return unread;
}

Status CheckMeaning(const OrderedJson& row, RecordFormat format, const std::string& where) {
  const bool has_answer = format != RecordFormat::kTokens && format != RecordFormat::kText;
  for (const char* key : {"images", "audios", "videos", "image", "audio", "video"}) {
    // Columns beside a plain text may be anything, and so may "image" beside a question; beside a conversation it is
    // what is talked about (LLaVA).
    const bool of_the_row = std::string_view(key).ends_with('s') ? has_answer : IsConversationFormat(format);
    if (!of_the_row || !FindFilled(row, key)) continue;
    return Unsupported(
        fmt::format("{}: has '{}': Temper trains on text only, so the model would learn to answer about what it does "
                    "not get: remove the row (or the field, if the text alone is meant)",
                    where, key));
  }
  if (FindFilled(row, "chosen") && FindFilled(row, "rejected")) {
    return Unsupported(
        fmt::format("{}: preference data ('chosen' and 'rejected'): add --task {}, or keep the chosen answer, {}, and "
                    "remove both fields",
                    where, TasksThatRead({RowUse::kPairs, RowUse::kRanked}), PlaceOfAnswer(format)));
  }
  for (const char* key : {"label", "kto_tag"}) {
    const OrderedJson* label = has_answer ? FindFilled(row, key) : nullptr;
    if (!label || !SaysFalse(*label)) continue;
    return Unsupported(fmt::format(
        "{}: '{}' is false, so its answer is one to avoid (preference data, as for KTO); Temper would train "
        "the model to give it: remove the row, or train with --task {}",
        where, key, TasksThatRead({RowUse::kRated})));
  }
  return OkStatus();
}

}  // namespace temper
