#include "data/record.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "data/pair.h"
#include "data/row_fields.h"
#include "data/template/chat_rendering.h"
#include "data/template/conversation.h"
#include "format/json.h"
#include "objective/objective.h"

namespace temper {
namespace {

std::string KeysOf(const OrderedJson& row) {
  std::string keys;
  int n = 0;
  for (const auto& [key, value] : row.items()) {
    if (++n > 12) return keys + ", ...";
    keys += fmt::format("{}'{}'", n == 1 ? "" : ", ", key.substr(0, 40));
  }
  return keys.empty() ? "none" : keys;
}

// The error for a required field.
Status NoFieldOfRow(const OrderedJson& row, const char* key, const std::string& where) {
  if (row.contains(key))
    return Corrupt(fmt::format("{}: '{}' is null; give it a value, or leave the row out", where, key));
  return Corrupt(fmt::format("{}: '{}' is missing; the row has {}", where, key, KeysOf(row)));
}

Result<std::string> TextOfRow(const OrderedJson& row, const char* key, const std::string& where) {
  const OrderedJson* value = FindValue(row, key);
  if (!value) return NoFieldOfRow(row, key, where);
  if (!value->is_string()) {
    return Corrupt(fmt::format("{}: '{}' should be text but is {}", where, key, value->type_name()));
  }
  return value->get<std::string>();
}

Result<std::string> TextOr(const OrderedJson& row, const char* key, const std::string& where) {
  if (!FindValue(row, key)) return std::string();
  return TextOfRow(row, key, where);
}

bool IsListOfMessages(const OrderedJson& row) {
  return row.is_array() && !row.empty() &&
         std::all_of(row.begin(), row.end(), [](const OrderedJson& m) { return m.is_object() && m.contains("role"); });
}

OrderedJson Message(const char* role, std::string content) {
  OrderedJson message = OrderedJson::object();
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

// A text that should be a list of messages, as text files of tables often have it.
bool LooksLikeMessages(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  for (const char c : {'[', '{'}) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
  }
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.starts_with("'role'") || text.starts_with("\"role\"") || text.starts_with("'content'") ||
         text.starts_with("\"content\"");
}

// The error for a field whose list is in a text.
Status ListAsText(std::string_view text, const char* key, const std::string& where) {
  if (IsPythonText(text)) return Corrupt(PythonText(fmt::format("{}: '{}'", where, key)));
  return Corrupt(
      fmt::format("{}: '{}' should be a list of messages but is text: write it as a JSON list, not as a text "
                  "that holds one",
                  where, key));
}

// Joins the parts of a prompt that comes from several fields.
std::string Joined(const std::string& head, const std::string& tail, const std::string& separator = kParagraph) {
  return head.empty() ? tail : tail.empty() ? head : head + separator + tail;
}

Result<Record> Conversation(OrderedJson messages, const OrderedJson& row, const std::string& where) {
  Record record{.kind = RecordKind::kMessages, .where = where};
  if (row.is_object()) {
    TEMPER_ASSIGN_OR_RETURN(const std::string system, TextOr(row, "system", where));
    const bool has_system = messages.is_array() && !messages.empty() && messages[0].is_object() &&
                            messages[0].value("role", OrderedJson()) == "system";
    if (!system.empty() && !has_system && messages.is_array()) {
      messages.insert(messages.begin(), Message("system", system));
    }
    if (const OrderedJson* tools = FindValue(row, "tools")) {
      TEMPER_ASSIGN_OR_RETURN(record.tools, NormalizeTools(*tools, where));
    }
  }
  TEMPER_RETURN_IF_ERROR(NormalizeMessages(messages, where));
  record.messages = std::move(messages);
  return record;
}

// TRL's conversational form: both fields are lists of messages, and only the second is supervised.
Result<Record> PromptOfMessages(const OrderedJson& row, const std::string& where) {
  OrderedJson messages = *FindValue(row, "prompt");
  for (OrderedJson& message : messages) {
    if (message.is_object()) message["weight"] = 0;
  }
  for (const OrderedJson& message : *FindValue(row, "completion")) messages.push_back(message);
  return Conversation(std::move(messages), row, where);
}

Result<Record> PromptRecord(const OrderedJson& row, RecordFormat format, const std::string& where,
                            const std::string& separator) {
  Record record{.kind = RecordKind::kPrompt, .where = where};
  record.is_instruction = format != RecordFormat::kPromptCompletion;
  TEMPER_ASSIGN_OR_RETURN(record.system, TextOr(row, "system", where));
  if (format == RecordFormat::kPromptCompletion) {
    const OrderedJson* prompt = FindValue(row, "prompt");
    const OrderedJson* completion = FindValue(row, "completion");
    if (prompt && completion && prompt->is_array() && completion->is_array()) return PromptOfMessages(row, where);
    TEMPER_ASSIGN_OR_RETURN(record.prompt, TextOfRow(row, "prompt", where));
    TEMPER_ASSIGN_OR_RETURN(record.completion, TextOfRow(row, "completion", where));
    if (LooksLikeMessages(record.prompt) && LooksLikeMessages(record.completion)) {
      return ListAsText(record.prompt, "prompt", where);
    }
    return record;
  }
  const OrderedJson* beside = FindValue(row, "context");  // of HotpotQA a table: named as a field that is not read
  const std::string context = beside && beside->is_string() ? beside->get<std::string>() : "";
  if (format == RecordFormat::kQuestionAnswer) {
    TEMPER_ASSIGN_OR_RETURN(const std::string question, TextOfRow(row, "question", where));
    TEMPER_ASSIGN_OR_RETURN(record.completion, TextOfRow(row, "answer", where));
    record.prompt = Joined(question, context, separator);
    return record;
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string instruction, TextOfRow(row, "instruction", where));
  TEMPER_ASSIGN_OR_RETURN(const std::string input, TextOr(row, "input", where));
  TEMPER_ASSIGN_OR_RETURN(record.completion, TextOfRow(row, FindValue(row, "output") ? "output" : "response", where));
  record.prompt = Joined(Joined(instruction, input, separator), context, separator);
  const OrderedJson* history = FindValue(row, "history");
  if (history && !history->empty()) {
    OrderedJson messages = OrderedJson::array();
    if (history->is_string()) return ListAsText(history->get_ref<const std::string&>(), "history", where);
    if (!history->is_array()) return Corrupt(where + ": 'history' should be a list of [question, answer]");
    for (const OrderedJson& turn : *history) {
      if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
        return Corrupt(where + ": 'history' should be a list of [question, answer]");
      }
      messages.push_back(Message("user", turn[0].get<std::string>()));
      messages.push_back(Message("assistant", turn[1].get<std::string>()));
    }
    messages.push_back(Message("user", record.prompt));
    messages.push_back(Message("assistant", record.completion));
    return Conversation(std::move(messages), row, where);
  }
  return record;
}

Result<std::vector<int32_t>> Integers(const OrderedJson& row, const char* key, const std::string& where) {
  const OrderedJson* list = FindValue(row, key);
  if (!list || !list->is_array()) return Corrupt(fmt::format("{}: '{}' should be a list of integers", where, key));
  std::vector<int32_t> out;
  out.reserve(list->size());
  for (const OrderedJson& value : *list) {
    if (!value.is_number_integer()) return Corrupt(fmt::format("{}: '{}' should be a list of integers", where, key));
    // Unsigned values beyond int64 become negative or huge; both are out of range.
    const int64_t v = value.get<int64_t>();
    if (v > std::numeric_limits<int32_t>::max() || v < std::numeric_limits<int32_t>::min()) {
      return Corrupt(fmt::format("{}: {} in '{}' is not a token id", where, v, key));
    }
    out.push_back(static_cast<int32_t>(v));
  }
  return out;
}

Result<Record> TokensRecord(const OrderedJson& row, const std::string& where) {
  Record record{.kind = RecordKind::kTokens, .where = where};
  TEMPER_ASSIGN_OR_RETURN(record.input_ids, Integers(row, "input_ids", where));
  record.labels = record.input_ids;
  if (FindValue(row, "labels")) {
    TEMPER_ASSIGN_OR_RETURN(record.labels, Integers(row, "labels", where));
  }
  std::vector<int32_t> mask(record.input_ids.size(), 1);
  if (FindValue(row, "attention_mask")) {
    TEMPER_ASSIGN_OR_RETURN(mask, Integers(row, "attention_mask", where));
  }
  if (record.labels.size() != record.input_ids.size() || mask.size() != record.input_ids.size()) {
    return Corrupt(fmt::format("{}: {} input_ids, {} labels, {} attention_mask: they should be equally long", where,
                               record.input_ids.size(), record.labels.size(), mask.size()));
  }
  size_t kept = 0;  // padding that the file's author masked out is dropped
  for (size_t i = 0; i < mask.size(); ++i) {
    const int32_t id = record.input_ids[i], label = record.labels[i];
    if (mask[i] == 0) continue;
    if (id < 0) return Corrupt(fmt::format("{}: input_ids[{}] is {}: not a token id", where, i, id));
    if (label >= 0 && label != id) {
      return Corrupt(
          fmt::format("{}: labels[{}] is {} but input_ids[{}] is {}: a label equals its token, or is -100 to "
                      "leave it out of the loss (labels are not shifted)",
                      where, i, label, i, id));
    }
    record.input_ids[kept] = id;
    record.labels[kept++] = label;
  }
  record.input_ids.resize(kept);
  record.labels.resize(kept);
  return record;
}

// The row's chat_template_kwargs, which a table has as text.
Result<OrderedJson> TemplateVariables(const OrderedJson& row, const std::string& where) {
  const OrderedJson* given = FindValue(row, kTemplateVariables);
  if (!given || given->empty()) return OrderedJson();
  if (!given->is_object()) {
    return Corrupt(fmt::format("{}: '{}' should be an object such as {{\"enable_thinking\": false}} but is {}", where,
                               kTemplateVariables, given->type_name()));
  }
  TEMPER_RETURN_IF_ERROR(CheckVariables(*given, fmt::format("{}: '{}'", where, kTemplateVariables)));
  return *given;
}

// `row` is an object or a conversation.
Result<Record> RecordOf(OrderedJson row, RecordFormat format, const std::string& where, const std::string& separator) {
  if (format == RecordFormat::kMessages && IsListOfMessages(row)) {
    return Conversation(std::move(row), OrderedJson(), where);
  }
  switch (format) {
    case RecordFormat::kTokens:
      return TokensRecord(row, where);
    case RecordFormat::kMessages: {
      const OrderedJson* messages = FindValue(row, "messages");
      if (!messages) return NoFieldOfRow(row, "messages", where);
      if (messages->is_string()) return ListAsText(messages->get_ref<const std::string&>(), "messages", where);
      return Conversation(*messages, row, where);
    }
    case RecordFormat::kConversations: {
      const OrderedJson* turns = FindValue(row, "conversations");
      if (!turns) return NoFieldOfRow(row, "conversations", where);
      if (turns->is_string()) return ListAsText(turns->get_ref<const std::string&>(), "conversations", where);
      TEMPER_ASSIGN_OR_RETURN(OrderedJson messages, MessagesFromShareGpt(*turns, where));
      return Conversation(std::move(messages), row, where);
    }
    case RecordFormat::kText:
    case RecordFormat::kTextFile: {
      Record record{.kind = RecordKind::kText, .where = where};
      TEMPER_ASSIGN_OR_RETURN(record.text, TextOfRow(row, "text", where));
      return record;
    }
    default:
      return PromptRecord(row, format, where, separator);
  }
}

}  // namespace

Result<RecordFormat> DetectFormat(const OrderedJson& row, const std::string& where, const ColumnMap* columns) {
  // Of each format, in their order.
  static const std::vector<std::pair<RecordFormat, std::vector<const char*>>> kNeededFields = {
      {RecordFormat::kTokens, {"input_ids"}},
      {RecordFormat::kMessages, {"messages"}},
      {RecordFormat::kConversations, {"conversations"}},
      {RecordFormat::kPromptCompletion, {"prompt", "completion"}},
      {RecordFormat::kQuestionAnswer, {"question", "answer"}},
      {RecordFormat::kInstruction, {"instruction", "output"}},
      {RecordFormat::kInstruction, {"instruction", "response"}},
      {RecordFormat::kText, {"text"}}};
  if (IsListOfMessages(row)) return RecordFormat::kMessages;
  if (!row.is_object()) {
    return Corrupt(fmt::format("{}: a row should be an object or a list of messages but is {}{}", where,
                               row.is_array() ? "another list" : row.type_name(),
                               row.is_array() ? "; a file that is one JSON list should be named .json" : ""));
  }
  const auto has = [&](const char* key) { return FindValue(row, key) != nullptr; };
  for (const bool named : {true, false}) {
    if (named && (columns == nullptr || columns->empty())) continue;
    for (const auto& [format, fields] : kNeededFields) {
      const bool all = std::all_of(fields.begin(), fields.end(), has);
      if (all && (!named || std::any_of(fields.begin(), fields.end(), [&](auto f) { return columns->Names(f); }))) {
        return format;
      }
    }
  }
  if (has("chosen") && has("rejected")) {
    return Unsupported(
        fmt::format("{}: preference data ('chosen' and 'rejected'): add --task {}, or keep the chosen "
                    "answers, as prompt and completion or as messages",
                    where, TasksThatRead({RowUse::kPairs, RowUse::kRanked})));
  }
  // The fields of a format, but no values in them.
  for (const std::vector<const char*>& fields : {std::vector{"prompt", "completion"},
                                                 {"question", "answer"},
                                                 {"instruction", "output"},
                                                 {"instruction", "response"},
                                                 {"messages"},
                                                 {"conversations"},
                                                 {"text"},
                                                 {"input_ids"}}) {
    const auto stated = [&](const char* key) { return row.contains(key); };
    if (!std::all_of(fields.begin(), fields.end(), stated)) continue;
    return NoFieldOfRow(row, *std::find_if_not(fields.begin(), fields.end(), has), where);
  }
  return Corrupt(fmt::format(
      "{}: unknown format. The row has {}; Temper reads prompt + completion, question + answer, "
      "instruction [+ input] + output, messages, conversations, text, or input_ids [+ labels]. Name columns of "
      "other names (--columns prompt=QUESTION,completion=ANSWER), or write a row's text with a template "
      "(--row_template FILE)",
      where, KeysOf(row)));
}

Status NoPair(const OrderedJson& row, const std::string& where) {
  return Corrupt(
      fmt::format("{}: no pair of answers. The row has {}; tasks {} read chosen and rejected with prompt, question, "
                  "instruction, messages or conversations, or messages with rejected_response",
                  where, KeysOf(row), TasksThatRead({RowUse::kPairs, RowUse::kRanked}, "and")));
}

namespace {

Result<Record> PairRecord(OrderedJson row, const std::string& where, const std::string& separator) {
  if (!HasPair(row)) return NoPair(row, where);
  TEMPER_ASSIGN_OR_RETURN(PairOfRows pair, SplitPair(std::move(row), where));
  Record record{.kind = RecordKind::kPair, .where = where};
  for (OrderedJson* answer : {&pair.chosen, &pair.rejected}) {
    TEMPER_ASSIGN_OR_RETURN(Record one, MakeRecord(std::move(*answer), pair.format, where, separator));
    if (one.weight != kUnitWeight) return Unsupported(where + ": 'weight' has no meaning in pairs: remove it");
    // Only the answers differ: what was said before (an instruction's history) is the prompt of both.
    const size_t turns = pair.format == RecordFormat::kPromptCompletion ? 0 : one.messages.size();
    for (size_t i = 0; i + 1 < turns; ++i) one.messages[i]["weight"] = 0;
    record.answers.push_back(std::move(one));
  }
  record.unread = std::move(record.answers[0].unread);
  record.unread.insert(record.unread.end(), pair.unread.begin(), pair.unread.end());
  record.answers[1].unread.clear();
  return record;
}

}  // namespace

Result<Record> MakeRecord(OrderedJson row, RecordFormat format, const std::string& where,
                          const std::string& separator) {
  if (format == RecordFormat::kMessages && IsListOfMessages(row)) {
    return RecordOf(std::move(row), format, where, separator);
  }
  if (!row.is_object()) {
    return Corrupt(fmt::format("{}: a row should be an object but is {}", where, row.type_name()));
  }
  if (format == RecordFormat::kFields) {
    Record record{.kind = RecordKind::kFields, .where = where};
    record.fields = std::move(row);
    return record;
  }
  if (format == RecordFormat::kPair) return PairRecord(std::move(row), where, separator);
  TokenWeight weight = kUnitWeight;
  if (const OrderedJson* given = FindValue(row, "weight")) {
    if (!given->is_number()) {
      return Corrupt(fmt::format("{}: 'weight' should be a number from 0 to 256 but is {}", where, given->type_name()));
    }
    TEMPER_ASSIGN_OR_RETURN(weight, ToTokenWeight(given->get<double>(), where + ": 'weight'"));
  }
  TEMPER_RETURN_IF_ERROR(CheckMeaning(row, format, where));
  std::vector<std::string> unread = UnreadFields(row, format);
  OrderedJson variables;
  if (std::find(unread.begin(), unread.end(), kTemplateVariables) == unread.end()) {
    TEMPER_ASSIGN_OR_RETURN(variables, TemplateVariables(row, where));
  }
  TEMPER_ASSIGN_OR_RETURN(Record record, RecordOf(std::move(row), format, where, separator));
  record.weight = weight;
  record.template_variables = std::move(variables);
  record.unread = std::move(unread);
  return record;
}

std::string PromptText(const Record& record) {
  return Joined(record.system, record.prompt);
}

// The space belongs to the completion, so that the prompt is what a person would
// type. It is a space because tokenizers begin a word with it; a line end would merge
// with a question mark before it ("?\n" is one token of GPT-like vocabularies).
std::string CompletionText(const Record& record) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::string& prompt = record.prompt;
  const std::string& completion = record.completion;
  const bool apart = !record.is_instruction || prompt.empty() || kSpace.find(prompt.back()) != kSpace.npos ||
                     completion.empty() || kSpace.find(completion.front()) != kSpace.npos;
  return apart ? completion : " " + completion;
}

Record AsConversation(const Record& record) {
  TEMPER_CHECK(record.kind == RecordKind::kPrompt) << record.where << " is a conversation already";
  Record out{.kind = RecordKind::kMessages, .where = record.where, .weight = record.weight};
  out.template_variables = record.template_variables;
  out.desirable = record.desirable;
  out.messages = OrderedJson::array();
  if (!record.system.empty()) out.messages.push_back(Message("system", record.system));
  out.messages.push_back(Message("user", record.prompt));
  out.messages.push_back(Message("assistant", record.completion));
  return out;
}

}  // namespace temper
