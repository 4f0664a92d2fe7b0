// Renders prefixes of one conversation, for ChatTemplate and for the derivation of spans.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/template/chat_rendering.h"
#include "data/template/value.h"

namespace temper {

// One conversation, ready to be rendered up to any message. Refers to its inputs.
class ChatRenderer {
 public:
  struct Message {
    jinja::Value value;  // without the keys "weight" and "train"
    bool assistant = false;
    bool supervised = false;
  };

  static Result<ChatRenderer> Make(const Template& jinja_template, const ChatSpecialTokens& special_tokens,
                                   const OrderedJson& messages, const OrderedJson& tools, const ChatOptions& options);

  const std::vector<Message>& messages() const { return messages_; }
  const Template& jinja_template() const { return *template_; }
  const std::function<bool(std::string_view)>& is_beyond() const { return *is_beyond_; }

  // Renders the first `count` messages. `replaced_content`: if not null, replaces the content of the last one.
  Result<RenderedTemplate> Render(size_t count, bool add_generation_prompt,
                                  const char* replaced_content = nullptr) const;

 private:
  explicit ChatRenderer(const Template& t) : template_(&t) {}

  const Template* template_;
  std::vector<Message> messages_;
  Template::Variables variables_;  // all but the messages
  RenderOptions options_;
  const std::function<bool(std::string_view)>* is_beyond_ = nullptr;
};

// The texts and spans of a conversation; `eos_token` may be empty.
Result<std::vector<RenderedChat>> DeriveSpans(const ChatRenderer& chat, const std::string& eos_token);

}  // namespace temper
