#include "data/template/chat_renderer.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/template/conversation.h"
#include "data/template/value_json.h"
#include "format/json.h"

namespace temper {
namespace {

// Whether a message is to be supervised: "weight" (OpenAI's key; any but 0) or "train" (true or false).
Result<bool> WantsTraining(const OrderedJson& message, const std::string& where) {
  const auto weight = message.find("weight"), train = message.find("train");
  if (weight != message.end() && !weight->is_null()) {
    if (weight->is_boolean()) return weight->get<bool>();
    if (weight->is_number() && weight->get<double>() >= 0) return weight->get<double>() > 0;
    return InvalidArgument(
        fmt::format("{}: 'weight' should be a number of at least 0 but is {}", where, DumpJson(*weight)));
  }
  if (train != message.end() && !train->is_null()) {
    if (train->is_boolean()) return train->get<bool>();
    return InvalidArgument(fmt::format("{}: 'train' should be true or false but is {}", where, DumpJson(*train)));
  }
  return true;
}

// Whether what a message has under `key` is the speaker's words, besides its content. Other keys, such as the speaker's
// name, may be in the header of a turn.
bool IsSaid(std::string_view key) {
  return key == "tool_calls" || key == "function_call" ||
         std::find(kReasoningKeys.begin(), kReasoningKeys.end(), key) != kReasoningKeys.end();
}

// The message as the template sees it. Reasoning has several names: it is passed on under the two that templates read,
// "reasoning_content" and (gpt-oss) "thinking", as transformers 5 does; tests/conversation compares.
OrderedJson ForTemplate(const OrderedJson& message) {
  const OrderedJson* reasoning = ReasoningOf(message);
  OrderedJson out = OrderedJson::object();
  if (reasoning) out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (key != "weight" && key != "train") out[key] = value;
  }
  if (reasoning) out["reasoning_content"] = *reasoning;
  return out;
}

}  // namespace

Status CheckVariables(const OrderedJson& variables, const std::string& what) {
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (!variables.contains(name)) continue;
    return InvalidArgument(
        fmt::format("{}: '{}' is set for every template and cannot be chosen; leave it out", what, name));
  }
  return OkStatus();
}

Result<ChatRenderer> ChatRenderer::Make(const Template& jinja_template, const ChatSpecialTokens& special_tokens,
                                        const OrderedJson& messages, const OrderedJson& tools,
                                        const ChatOptions& options) try {
  if (!messages.is_array()) {
    return InvalidArgument(fmt::format("the messages should be a list but are {}", messages.type_name()));
  }
  if (!tools.is_null() && !tools.is_array()) {
    return InvalidArgument(fmt::format("the tools should be a list but are {}", tools.type_name()));
  }
  ChatRenderer out(jinja_template);
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson& message = messages[i];
    const std::string where = fmt::format("message {}", i + 1);
    if (!message.is_object()) {
      return InvalidArgument(fmt::format("{} should be an object but is {}", where, message.type_name()));
    }
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return InvalidArgument(fmt::format("{} has no 'role' (one of system, user, assistant, tool)", where));
    }
    TEMPER_ASSIGN_OR_RETURN(const bool wanted, WantsTraining(message, where));
    const bool assistant = *role == "assistant";
    out.messages_.push_back({jinja::FromJson(ForTemplate(message)), assistant, assistant && wanted});
  }
  const auto set = [&](const std::string& name, jinja::Value value) {
    const auto it = std::find_if(out.variables_.begin(), out.variables_.end(),
                                 [&](const auto& variable) { return variable.first == name; });
    if (it == out.variables_.end()) {
      out.variables_.emplace_back(name, std::move(value));
    } else {
      it->second = std::move(value);
    }
  };
  for (const auto& [name, token] : special_tokens) set(name, jinja::Value::String(token));
  if (options.variables) {
    if (!options.variables->is_object()) return InvalidArgument("the template's variables should be an object");
    for (const auto& [name, value] : options.variables->items()) set(name, jinja::FromJson(value));
  }
  set("tools", tools.empty() ? jinja::Value() : jinja::FromJson(tools));
  set("documents", jinja::Value());
  out.options_ = {.now = options.today, .limits = options.limits};
  out.is_beyond_ = &options.is_beyond;
  out.all_renderings_ = options.all_renderings;
  out.one_text_ = options.one_text;
  return out;
} catch (const jinja::TemplateError& error) {
  return Status(error.code(), error.what());
}

bool ChatRenderer::SaysMore(size_t message) const {
  const auto& entries = messages_[message].value.dict().entries;
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return entry.first.IsString() && IsSaid(entry.first.text()); });
}

Result<RenderedTemplate> ChatRenderer::Render(size_t count, bool add_generation_prompt,
                                              const OtherWords* instead) const {
  Template::Variables variables = variables_;
  std::vector<jinja::Value> shown;
  for (size_t i = 0; i < count; ++i) shown.push_back(messages_[i].value);
  if (instead) {
    jinja::DictBuilder message;
    jinja::Value& other = shown[instead->message.value_or(count - 1)];
    for (const auto& [key, value] : other.dict().entries) {
      if (!instead->alone || !key.IsString() || !IsSaid(key.text())) message.Set(key, value);
    }
    message.Set("content", jinja::Value::String(instead->content));
    other = message.Build();
  }
  variables.emplace_back("messages", jinja::Value::List(std::move(shown)));
  variables.emplace_back("add_generation_prompt", jinja::Value::Bool(add_generation_prompt));
  return template_->RenderVariables(variables, options_);
}

}  // namespace temper
