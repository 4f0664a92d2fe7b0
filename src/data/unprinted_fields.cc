#include "data/unprinted_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "data/conversation.h"

namespace temper {
namespace {

constexpr size_t kMostSearched = size_t{1} << 30;  // bytes of a row's texts; a second. What is left counts as printed
constexpr size_t kMostNames = 16;                  // that are checked one by one

constexpr const char* kOtherContent = "Qzx7probe";

std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Templates change white space at the ends of a text, and may print it in pieces.
std::string_view LongestLine(std::string_view text) {
  std::string_view longest;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = Stripped(text.substr(at, end - at));
    if (line.size() > longest.size()) longest = line;
    at = end + 1;
  }
  return longest;
}

// As a template prints it that makes JSON of it.
std::string Escaped(std::string_view text) {
  const std::string quoted = OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

bool IsReasoning(std::string_view key) {
  return std::find(kReasoningKeys.begin(), kReasoningKeys.end(), key) != kReasoningKeys.end();
}

// The texts within `value`.
void AddTexts(const OrderedJson& value, std::vector<std::string_view>& out) {
  if (value.is_string()) out.push_back(value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  for (const OrderedJson& part : value) AddTexts(part, out);
}

class Search {
 public:
  Search(const OrderedJson& messages, std::span<const RenderedChat> chats, bool all_counts)
      : messages_(messages), all_counts_(all_counts), counting_(messages.size()) {
    for (const RenderedChat& chat : chats) {
      all_.push_back(chat.text);
      if (!chat.beyond.empty()) all_.push_back(chat.beyond);
      for (size_t i = 0; i < chat.assistant.size(); ++i) {
        const TextSpan& span = chat.assistant[i];
        counting_[chat.messages[i]].push_back(std::string_view(chat.text).substr(span.begin, span.end - span.begin));
      }
    }
  }

  // Adds to sure() and suspected() what seems to be left out.
  void Tools(const OrderedJson& tools) {
    const std::vector<std::string> names = FunctionsOf(tools);
    if (!std::all_of(names.begin(), names.end(), [&](const auto& name) { return Has(all_, name); })) {
      sure_.push_back({"tools", std::nullopt});
    }
  }
  void Message(size_t m) {
    const OrderedJson& message = messages_[m];
    const bool assistant = message["role"] == "assistant";
    if (assistant) Reasoning(m);
    if (assistant) Calls(m);
    for (const auto& [key, value] : message.items()) {
      const bool silent = key == "role" || key == "weight" || key == "tool_call_id";
      const bool searched = assistant && (key == "tool_calls" || IsReasoning(key));
      if (!silent && !searched) Field(m, key, value);
    }
  }

  std::vector<UnprintedField>& sure() { return sure_; }
  const std::vector<UnprintedField>& suspected() const { return suspected_; }

 private:
  // The texts that should have what a turn says; none if it does not count.
  const std::vector<std::string_view>& Counting(size_t m) const { return all_counts_ ? all_ : counting_[m]; }

  bool Has(const std::vector<std::string_view>& texts, std::string_view text) {
    const std::string_view line = LongestLine(text);
    if (line.empty() || Finds(texts, line)) return true;
    const std::string escaped = Escaped(line);
    return escaped != line && Finds(texts, escaped);
  }

  bool Finds(const std::vector<std::string_view>& texts, std::string_view text) {
    if (searched_ > kMostSearched) return true;
    // Messages are mostly found in their order.
    if (&texts == &all_ && !all_.empty()) {
      const size_t at = all_.back().find(text, last_);
      searched_ += (at == std::string_view::npos ? all_.back().size() : at) - std::min(last_, all_.back().size());
      if (at != std::string_view::npos) {
        last_ = at;
        return true;
      }
    }
    return std::any_of(texts.begin(), texts.end(), [&](std::string_view where) {
      if (searched_ > kMostSearched) return true;
      searched_ += where.size();
      return where.find(text) != std::string_view::npos;
    });
  }

  void Reasoning(size_t m) {
    const std::vector<std::string_view>& texts = Counting(m);
    if (texts.empty()) return;
    std::vector<std::string_view> thoughts;
    if (const OrderedJson* reasoning = ReasoningOf(messages_[m])) AddTexts(*reasoning, thoughts);
    const auto content = messages_[m].find("content");
    if (content != messages_[m].end() && content->is_string()) {
      thoughts.push_back(SplitThought(content->get_ref<const std::string&>()).thought);
    }
    if (!std::all_of(thoughts.begin(), thoughts.end(), [&](const auto& thought) { return Has(texts, thought); })) {
      sure_.push_back({"reasoning", m});
    }
  }

  void Calls(size_t m) {
    const auto calls = messages_[m].find("tool_calls");
    if (calls == messages_[m].end()) return;
    const std::vector<std::string> names = FunctionsOf(*calls);
    const auto& texts = Counting(m).empty() ? all_ : Counting(m);
    if (!std::all_of(names.begin(), names.end(), [&](const auto& name) { return Has(texts, name); })) {
      sure_.push_back({"tool_calls", m});
    }
  }

  void Field(size_t m, const std::string& key, const OrderedJson& value) {
    std::vector<std::string_view> parts;
    const bool content = key == "content" && value.is_string();
    if (content) {
      parts.push_back(SplitThought(value.get_ref<const std::string&>()).said);
    } else {
      AddTexts(value, parts);
    }
    std::erase_if(parts, [](std::string_view part) { return LongestLine(part).empty(); });
    if (parts.empty()) return;
    if (!std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return Has(all_, part); })) {
      suspected_.push_back({key, m});
    }
  }

  const OrderedJson& messages_;
  const bool all_counts_;
  std::vector<std::string_view> all_;
  std::vector<std::vector<std::string_view>> counting_;  // by message
  std::vector<UnprintedField> sure_, suspected_;
  size_t last_ = 0;  // where the last text was found in the last of all_
  size_t searched_ = 0;
};

// Whether the template prints the same with these fields as without them. False if that cannot be found out.
class Comparison {
 public:
  Comparison(const ChatTemplate& chat_template, const OrderedJson& messages, const OrderedJson& tools,
             const ChatOptions& options)
      : template_(chat_template), messages_(messages), tools_(tools), options_(options), with_(Render(messages)) {}

  bool IsSame(const std::vector<UnprintedField>& fields, const std::string* only = nullptr) const {
    if (!with_.ok()) return false;
    OrderedJson without = messages_;
    for (const UnprintedField& field : fields) {
      if (only && field.name != *only) continue;
      OrderedJson& message = without[*field.message];
      if (field.name == "content") {
        message["content"] = kOtherContent;
      } else {
        message.erase(field.name);
      }
    }
    const auto text = Render(without);
    return text.ok() && *text == *with_;
  }

 private:
  Result<std::string> Render(const OrderedJson& messages) const {
    return template_.Render(messages, tools_, /*add_generation_prompt=*/false, options_);
  }

  const ChatTemplate& template_;
  const OrderedJson& messages_;
  const OrderedJson& tools_;
  const ChatOptions& options_;
  const Result<std::string> with_;
};

// How many messages the texts are of: what follows the last turn that counts is cut off.
size_t MessagesIn(std::span<const RenderedChat> chats, size_t all) {
  size_t end = 0;
  for (const RenderedChat& chat : chats) {
    if (chat.messages.empty() || !chat.beyond.empty()) return all;
    end = std::max(end, chat.messages.back() + 1);
  }
  return end;
}

}  // namespace

std::vector<UnprintedField> FindUnprintedFields(const ChatTemplate& chat_template, const OrderedJson& messages,
                                                const OrderedJson& tools, const ChatOptions& options,
                                                std::span<const RenderedChat> chats, bool all_counts) {
  Search search(messages, chats, all_counts);
  search.Tools(tools);
  for (size_t m = 0; m < MessagesIn(chats, messages.size()); ++m) search.Message(m);
  std::vector<UnprintedField> out = std::move(search.sure());
  const std::vector<UnprintedField>& suspected = search.suspected();
  if (suspected.empty()) return out;
  const Comparison comparison(chat_template, messages, tools, options);
  if (comparison.IsSame(suspected)) {
    out.insert(out.end(), suspected.begin(), suspected.end());
    return out;
  }
  std::set<std::string> names, unprinted;
  for (const UnprintedField& field : suspected) names.insert(field.name);
  if (names.size() == 1) return out;
  size_t checked = 0;
  for (const std::string& name : names) {
    if (++checked > kMostNames) break;
    if (comparison.IsSame(suspected, &name)) unprinted.insert(name);
  }
  std::copy_if(suspected.begin(), suspected.end(), std::back_inserter(out),
               [&](const UnprintedField& field) { return unprinted.contains(field.name); });
  return out;
}

}  // namespace temper
