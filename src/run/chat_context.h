// ChatContext: a chat template's input besides the messages: today's date, and the variables of --chat_template_kwargs
// ({"enable_thinking": false}), which transformers passes to a template in the same way.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "config/option.h"
#include "data/template/chat_rendering.h"

namespace temper {

class ChatContext {
 public:
  // `date`: YYYY-MM-DD. Errors: an invalid date, a variable that transformers sets itself ("messages").
  static Result<ChatContext> Create(const std::string& date, const JsonObject& kwargs);

  ChatOptions options() const { return {.today = today_, .variables = &variables_}; }  // must not outlive this

 private:
  std::tm today_ = Epoch();
  OrderedJson variables_ = OrderedJson::object();
};

}  // namespace temper
