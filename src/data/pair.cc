#include "data/pair.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "data/template/conversation.h"

namespace temper {
namespace {

constexpr const char* kAnswers[] = {"chosen", "rejected"};
constexpr const char* kRejectedResponse = "rejected_response";  // of ms-swift

OrderedJson Answer(const OrderedJson& answer) {
  if (!answer.is_string()) return answer;
  OrderedJson message = OrderedJson::object();
  message["role"] = "assistant";
  message["content"] = answer;
  return message;
}

// Bytes that both texts begin with, as TRL's extract_prompt counts them: a space before the difference belongs to the
// answers.
size_t SharedBytes(std::string_view a, std::string_view b) {
  size_t shared = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto inside = [](std::string_view text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;  // of a character's bytes
  };
  while (shared > 0 && (inside(a, shared) || inside(b, shared))) --shared;
  if (shared > 0 && a[shared - 1] == ' ') --shared;
  return shared;
}

// The row for each answer: `row` with `prompt` and the answer as its completion.
PairOfRows WithCompletions(const OrderedJson& row, OrderedJson prompt, OrderedJson chosen, OrderedJson rejected) {
  PairOfRows pair{.format = RecordFormat::kPromptCompletion, .chosen = row, .rejected = row};
  pair.chosen["prompt"] = prompt;
  pair.rejected["prompt"] = std::move(prompt);
  pair.chosen["completion"] = std::move(chosen);
  pair.rejected["completion"] = std::move(rejected);
  return pair;
}

PairOfRows SplitTexts(const OrderedJson& row, const std::string& chosen, const std::string& rejected) {
  const size_t shared = SharedBytes(chosen, rejected);
  return WithCompletions(row, chosen.substr(0, shared), chosen.substr(shared), rejected.substr(shared));
}

PairOfRows SplitMessages(const OrderedJson& row, const OrderedJson& chosen, const OrderedJson& rejected) {
  size_t shared = 0;
  while (shared < chosen.size() && shared < rejected.size() && chosen[shared] == rejected[shared]) ++shared;
  const auto part = [](const OrderedJson& list, size_t begin, size_t end) {
    OrderedJson out = OrderedJson::array();
    for (size_t i = begin; i < end; ++i) out.push_back(list[i]);
    return out;
  };
  return WithCompletions(row, part(chosen, 0, shared), part(chosen, shared, chosen.size()),
                         part(rejected, shared, rejected.size()));
}

// Takes the list of messages that a row has beside its answers; null: there is none.
Result<OrderedJson> MessagesBeside(OrderedJson& row, const std::string& where) {
  for (const char* key : {"messages", "conversations"}) {
    if (FindValue(row, key) == nullptr) continue;
    OrderedJson list = std::move(row[key]);
    row.erase(key);
    if (!list.is_array()) return Corrupt(fmt::format("{}: '{}' should be a list of messages", where, key));
    return key == std::string_view("conversations") ? MessagesFromShareGpt(list, where) : Result(std::move(list));
  }
  return OrderedJson();
}

// An answer, a text, a message or a list of them, as a list of messages.
Result<OrderedJson> AnswerMessages(OrderedJson answer, const std::string& where) {
  OrderedJson list = OrderedJson::array();
  if (answer.is_array()) {
    list = std::move(answer);
  } else {
    list.push_back(Answer(answer));
  }
  const bool sharegpt = !list.empty() && list[0].is_object() && list[0].contains("from");
  return sharegpt ? MessagesFromShareGpt(list, where) : Result(std::move(list));
}

Result<PairOfRows> WithMessages(const OrderedJson& row, OrderedJson prompt, OrderedJson chosen, OrderedJson rejected,
                                const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(chosen, AnswerMessages(std::move(chosen), where));
  TEMPER_ASSIGN_OR_RETURN(rejected, AnswerMessages(std::move(rejected), where));
  return WithCompletions(row, std::move(prompt), std::move(chosen), std::move(rejected));
}

// Two lists of messages without a list of the prompt's. `text`: of the prompt, or null.
Result<PairOfRows> SplitLists(const OrderedJson& row, OrderedJson chosen, OrderedJson rejected, const OrderedJson& text,
                              const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(chosen, AnswerMessages(std::move(chosen), where));
  TEMPER_ASSIGN_OR_RETURN(rejected, AnswerMessages(std::move(rejected), where));
  PairOfRows pair = SplitMessages(row, chosen, rejected);
  if (text.is_null()) return pair;
  const OrderedJson& shared = pair.chosen["prompt"];
  if (shared.empty()) {
    OrderedJson user = OrderedJson::object();
    user["role"] = "user";
    user["content"] = text;
    OrderedJson prompt = OrderedJson::array();
    prompt.push_back(std::move(user));
    return WithCompletions(row, std::move(prompt), std::move(chosen), std::move(rejected));
  }
  const bool same = std::any_of(shared.begin(), shared.end(), [&](const OrderedJson& message) {
    return message.is_object() && message.value("content", OrderedJson()) == text;
  });
  if (!same) pair.unread.push_back("prompt");
  return pair;
}

}  // namespace

bool HasPair(const OrderedJson& row) {
  const auto has = [&](const char* key) { return FindValue(row, key) != nullptr; };
  return (has("chosen") && has("rejected")) || (has("messages") && has(kRejectedResponse));
}

Result<PairOfRows> SplitPair(OrderedJson row, const std::string& where) {
  if (const OrderedJson* found = FindValue(row, kRejectedResponse); found && FindValue(row, "messages")) {
    OrderedJson rejected = *found;
    row.erase(kRejectedResponse);
    TEMPER_ASSIGN_OR_RETURN(OrderedJson messages, MessagesBeside(row, where));
    if (messages.empty()) return Corrupt(where + ": 'messages' is empty");
    OrderedJson chosen = messages.back();
    messages.erase(messages.size() - 1);
    return WithMessages(row, std::move(messages), std::move(chosen), std::move(rejected), where);
  }
  OrderedJson answers[2];
  for (size_t k = 0; k < 2; ++k) {
    const OrderedJson* answer = FindValue(row, kAnswers[k]);
    if (answer == nullptr) {
      return Corrupt(fmt::format("{}: '{}' is {}; a pair needs a chosen and a rejected answer", where, kAnswers[k],
                                 row.contains(kAnswers[k]) ? "null" : "missing"));
    }
    answers[k] = *answer;
    row.erase(kAnswers[k]);
  }
  auto& [chosen, rejected] = answers;
  if (chosen.type() != rejected.type() || !(chosen.is_string() || chosen.is_array() || chosen.is_object())) {
    return Corrupt(
        fmt::format("{}: 'chosen' is {} and 'rejected' is {}: both should be texts, lists of messages, or one "
                    "message each",
                    where, chosen.type_name(), rejected.type_name()));
  }
  const OrderedJson* const found = FindValue(row, "prompt");
  const OrderedJson prompt = found == nullptr ? OrderedJson() : *found;
  if (!prompt.is_null() && !prompt.is_string() && !prompt.is_array()) {
    return Corrupt(
        fmt::format("{}: 'prompt' should be text or a list of messages but is {}", where, prompt.type_name()));
  }
  if (prompt.is_array()) return WithMessages(row, prompt, std::move(chosen), std::move(rejected), where);
  TEMPER_ASSIGN_OR_RETURN(OrderedJson messages, MessagesBeside(row, where));
  if (!messages.is_null()) {
    TEMPER_ASSIGN_OR_RETURN(PairOfRows pair,
                            WithMessages(row, std::move(messages), std::move(chosen), std::move(rejected), where));
    if (!prompt.is_null()) pair.unread.push_back("prompt");
    return pair;
  }
  if (chosen.is_array()) return SplitLists(row, std::move(chosen), std::move(rejected), prompt, where);
  if (chosen.is_object()) {
    return Corrupt(where + ": 'chosen' and 'rejected' are messages, but the row has no 'messages' that they answer");
  }
  if (prompt.is_string()) return WithCompletions(row, prompt, std::move(chosen), std::move(rejected));
  for (const auto& [key, answer, format] : {std::tuple{"question", "answer", RecordFormat::kQuestionAnswer},
                                            {"instruction", "output", RecordFormat::kInstruction}}) {
    if (FindValue(row, key) == nullptr) continue;
    PairOfRows pair{.format = format, .chosen = row, .rejected = std::move(row)};
    pair.chosen[answer] = std::move(chosen);
    pair.rejected[answer] = std::move(rejected);
    return pair;
  }
  return SplitTexts(row, chosen.get_ref<const std::string&>(), rejected.get_ref<const std::string&>());
}

}  // namespace temper
