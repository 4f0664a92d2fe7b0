#include "data/template/conversation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/text_parts.h"
#include "data/template/token_weight.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kRoles = {{
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"system", "system"},
    {"developer", "system"},
    {"observation", "tool"},
    {"tool", "tool"},
    {"function_response", "tool"},
    {"function_call", "function_call"},
    {"function-call", "function_call"},
    {"tool_call", "function_call"},
}};

// Names that other tools give the two speakers. No template understands them.
Status CheckRole(const std::string& role, const std::string& where) {
  if (role == "user" || role == "assistant") return OkStatus();
  const auto* known = std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& r) { return r.first == role; });
  if (known == kRoles.end() || (known->second != "user" && known->second != "assistant")) return OkStatus();
  return Corrupt(fmt::format("{0}: the role \"{1}\" is called \"{2}\" in messages: --roles {2}={1} reads it so", where,
                             role, known->second));
}

// JSON within a text of the row.
Result<OrderedJson> ParseText(const std::string& text, const std::string& where) {
  Result<OrderedJson> parsed = ParseOrderedJson(text, where);
  if (!parsed.ok() && IsPythonText(text)) return Corrupt(PythonText(where));
  return parsed;
}

// The calls of a function_call turn: JSON text of one {name, arguments} or a list of them.
Result<OrderedJson> ToolCalls(const OrderedJson& value, const std::string& where) {
  OrderedJson parsed = value;
  if (value.is_string()) {
    TEMPER_ASSIGN_OR_RETURN(parsed, ParseText(value.get_ref<const std::string&>(), where + ", function call"));
  }
  if (!parsed.is_array()) parsed = OrderedJson::array({std::move(parsed)});
  OrderedJson calls = OrderedJson::array();
  for (OrderedJson& function : parsed) {
    if (!function.is_object() || !FindValue(function, "name")) {
      return Corrupt(where + ": a function call should be {\"name\": ..., \"arguments\": ...}");
    }
    OrderedJson call = OrderedJson::object();
    call["type"] = "function";
    call["function"] = std::move(function);
    calls.push_back(std::move(call));
  }
  return calls;
}

// The error for a required field.
Status NoField(const OrderedJson& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return Corrupt(fmt::format("{}: '{}' is missing", where, key));
  return Corrupt(fmt::format("{}: '{}' is null; give it a value, or leave the row out", where, key));
}

// Joins text parts; refuses anything else (images, audio).
Result<std::string> JoinParts(const OrderedJson& parts, const std::string& where) {
  std::string text;
  for (const OrderedJson& part : parts) {
    const OrderedJson* piece = &part;
    if (part.is_object()) {
      const OrderedJson* type = FindValue(part, "type");
      if (type && *type != "text") {
        return Unsupported(fmt::format("{}: content of type {}: Temper trains on text only", where, DumpJson(*type)));
      }
      piece = FindValue(part, "text");
      if (!piece) piece = FindValue(part, "value");
    }
    if (!piece || !piece->is_string()) return Corrupt(where + ": a part of 'content' has no text");
    text += piece->get_ref<const std::string&>();
  }
  return text;
}

Status ParseArguments(OrderedJson& calls, const std::string& where) {
  if (!calls.is_array()) return Corrupt(where + ": 'tool_calls' should be a list");
  for (OrderedJson& call : calls) {
    if (!call.is_object()) return Corrupt(where + ": each of 'tool_calls' should be an object");
    auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    // Templates print arguments with tojson, which would quote text twice. Text that is not JSON stays text.
    auto parsed = ParseOrderedJson(arguments->get_ref<const std::string&>(), where);
    if (parsed.ok() && parsed->is_object()) *arguments = *std::move(parsed);
  }
  return OkStatus();
}

// Replaces the keys by which data sets weight a message, or switch it off, by one: "weight", a multiple of 2^-16,
// absent if it is 1. Several are multiplied.
Status UnifyWeight(OrderedJson& message, const std::string& where) {
  double product = 1;
  for (const char* key : {"weight", "loss_weight", "loss", "train"}) {
    const auto it = message.find(key);
    if (it == message.end()) continue;
    if (it->is_boolean()) {
      product *= it->get<bool>() ? 1 : 0;
    } else if (it->is_number()) {
      TEMPER_ASSIGN_OR_RETURN(const TokenWeight weight,
                              ToTokenWeight(it->get<double>(), fmt::format("{}: '{}'", where, key)));
      product *= WeightValue(weight);
    } else if (!it->is_null()) {
      return Corrupt(fmt::format("{}: '{}' should be a number from 0 to 256 but is {}", where, key, it->type_name()));
    }
    message.erase(it);
  }
  TEMPER_ASSIGN_OR_RETURN(const TokenWeight weight, ToTokenWeight(product, where + ": the product of its weights"));
  if (weight == 0) message["weight"] = 0;
  if (weight != 0 && weight != kUnitWeight) message["weight"] = WeightValue(weight);
  return OkStatus();
}

}  // namespace

Result<OrderedJson> MessagesFromShareGpt(const OrderedJson& turns, const std::string& where) {
  if (!turns.is_array()) return Corrupt(where + ": 'conversations' should be a list of turns");
  OrderedJson messages = OrderedJson::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    const OrderedJson& turn = turns[i];
    const std::string place = fmt::format("{}, turn {}", where, i + 1);
    if (!turn.is_object()) return Corrupt(place + " should be an object {\"from\": ..., \"value\": ...}");
    const OrderedJson* from = FindValue(turn, "from");
    if (!from) from = FindValue(turn, "role");
    const OrderedJson* value = FindValue(turn, "value");
    if (!value) value = FindValue(turn, "content");
    if (!from) return NoField(turn, !turn.contains("from") && turn.contains("role") ? "role" : "from", place);
    if (!from->is_string()) {
      return Corrupt(fmt::format("{}: 'from' should be text but is {}", place, from->type_name()));
    }
    const std::string& name = from->get_ref<const std::string&>();
    const auto* role = std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& r) { return r.first == name; });
    if (role == kRoles.end()) {
      std::string known;
      for (const auto& [speaker, as] : kRoles) known += fmt::format("{}{}", known.empty() ? "" : ", ", speaker);
      return Corrupt(fmt::format("{}: unknown speaker \"{}\"; known are {} (--roles user=NAME says who speaks)", place,
                                 name, known));
    }
    if (!value && (role->second == "function_call" || !FindValue(turn, "tool_calls"))) {
      return NoField(turn, !turn.contains("value") && turn.contains("content") ? "content" : "value", place);
    }

    OrderedJson message = OrderedJson::object();
    if (role->second == "function_call") {
      TEMPER_ASSIGN_OR_RETURN(OrderedJson calls, ToolCalls(*value, place));
      message["role"] = "assistant";
      message["content"] = "";
      message["tool_calls"] = std::move(calls);
    } else {
      message["role"] = std::string(role->second);
      message["content"] = value ? *value : OrderedJson("");
    }
    for (const auto& [key, field] : turn.items()) {
      if (key != "from" && key != "role" && key != "value" && key != "content") message[key] = field;
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

Status NormalizeMessages(OrderedJson& messages, const std::string& where) {
  if (!messages.is_array() || messages.empty()) return Corrupt(where + ": 'messages' should be a list of messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    OrderedJson& message = messages[i];
    const std::string place = fmt::format("{}, message {}", where, i + 1);
    if (!message.is_object()) return Corrupt(place + " should be an object {\"role\": ..., \"content\": ...}");
    const OrderedJson* role = FindValue(message, "role");
    if (!role) return NoField(message, "role", place);
    if (!role->is_string())
      return Corrupt(fmt::format("{}: 'role' should be text but is {}", place, role->type_name()));
    TEMPER_RETURN_IF_ERROR(CheckRole(role->get_ref<const std::string&>(), place));
    const OrderedJson* calls = FindValue(message, "tool_calls");
    const OrderedJson* content = FindValue(message, "content");
    if (!content) {
      if (!calls) return NoField(message, "content", place);
      message["content"] = "";
    } else if (content->is_array()) {
      TEMPER_ASSIGN_OR_RETURN(std::string text, JoinParts(*content, place));
      message["content"] = std::move(text);
    } else if (!content->is_string()) {
      return Corrupt(fmt::format("{}: 'content' should be text but is {}", place, content->type_name()));
    }
    if (calls) TEMPER_RETURN_IF_ERROR(ParseArguments(message["tool_calls"], place));
    TEMPER_RETURN_IF_ERROR(UnifyWeight(message, place));
  }
  return OkStatus();
}

bool IsPythonText(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto skip_space = [&] { text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size())); };
  skip_space();
  size_t open = 0;
  for (; text.starts_with('[') || text.starts_with('{'); ++open) {
    text.remove_prefix(1);
    skip_space();
  }
  return open > 0 && text.starts_with('\'');
}

std::string PythonText(const std::string& what) {
  return what +
         " is a list as Python prints it, in single quotes, not JSON: pandas writes cells like this; save the "
         "table with df.to_json(\"data.jsonl\", orient=\"records\", lines=True) instead";
}

bool IsSupervised(const OrderedJson& message) {
  return message["role"] == "assistant" && WeightOf(message) > 0;
}

TokenWeight WeightOf(const OrderedJson& message) {
  const OrderedJson* weight = FindValue(message, "weight");
  return weight ? static_cast<TokenWeight>(weight->get<double>() * kUnitWeight) : kUnitWeight;
}

bool HasNoText(const OrderedJson& message) {
  const OrderedJson* content = FindValue(message, "content");
  return !content || (content->is_string() && IsBlank(content->get_ref<const std::string&>()));
}

bool IsEmpty(const OrderedJson& message) {
  if (!HasNoText(message)) return false;
  const auto says = [](const OrderedJson* said) {
    return said && !said->empty() && !(said->is_string() && IsBlank(said->get_ref<const std::string&>()));
  };
  return !says(FindValue(message, "tool_calls")) && !says(FindValue(message, "function_call")) &&
         std::none_of(kReasoningKeys.begin(), kReasoningKeys.end(),
                      [&](const char* key) { return says(FindValue(message, key)); });
}

std::vector<std::string> FunctionsOf(const OrderedJson& list) {
  std::vector<std::string> names;
  if (!list.is_array()) return names;
  for (const OrderedJson& one : list) {
    const OrderedJson* function = one.is_object() ? FindValue(one, "function") : nullptr;
    const OrderedJson* name = function && function->is_object() ? FindValue(*function, "name") : nullptr;
    if (name && name->is_string()) names.push_back(name->get<std::string>());
  }
  return names;
}

const OrderedJson* ReasoningOf(const OrderedJson& message) {
  for (const char* key : kReasoningKeys) {
    if (const OrderedJson* reasoning = FindValue(message, key)) return reasoning;
  }
  return nullptr;
}

ThoughtAndSaid SplitThought(std::string_view content) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const size_t close = content.find(kClose);
  if (close == content.npos) return {.thought = "", .said = content};
  std::string_view thought = content.substr(0, close);
  if (const size_t open = thought.rfind(kOpen); open != thought.npos) thought.remove_prefix(open + kOpen.size());
  return {.thought = thought, .said = content.substr(close + kClose.size())};
}

Result<OrderedJson> NormalizeTools(const OrderedJson& tools, const std::string& where) {
  OrderedJson list = tools;
  if (tools.is_string()) {
    const std::string& text = tools.get_ref<const std::string&>();
    if (IsBlank(text)) return OrderedJson();
    TEMPER_ASSIGN_OR_RETURN(list, ParseText(text, where + ", tools"));
  }
  if (list.is_null()) return OrderedJson();
  if (!list.is_array()) return Corrupt(where + ": 'tools' should be a list");
  for (OrderedJson& tool : list) {
    if (!tool.is_object()) return Corrupt(where + ": each of 'tools' should be an object");
    if (tool.contains("function") || !tool.contains("name")) continue;
    OrderedJson wrapped = OrderedJson::object();
    wrapped["type"] = "function";
    wrapped["function"] = std::move(tool);
    tool = std::move(wrapped);
  }
  if (list.empty()) return OrderedJson();
  return list;
}

}  // namespace temper
