#include "data/unprinted_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text_parts.h"
#include "data/printed_texts.h"
#include "data/template/conversation.h"

namespace temper {
namespace {

constexpr size_t kMostChecks = 16;  // of fields of one row

constexpr const char* kOtherContent = "Qzx7probe";

bool IsReasoning(std::string_view key) {
  return std::find(kReasoningKeys.begin(), kReasoningKeys.end(), key) != kReasoningKeys.end();
}

// The texts within `value`.
void AddTexts(const OrderedJson& value, std::vector<std::string_view>& out) {
  if (value.is_string()) out.push_back(value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  for (const OrderedJson& part : value) AddTexts(part, out);
}

// A field that was not found, or not searched any more.
struct Suspect {
  std::string name;
  size_t message;
  std::string role;
  bool searched;
};
using Suspects = std::vector<const Suspect*>;

class Search {
 public:
  Search(const OrderedJson& messages, std::span<const RenderedChat> chats, bool all_counts)
      : messages_(messages), all_counts_(all_counts), all_(chats), spans_(messages.size()) {
    for (const RenderedChat& chat : chats) {
      for (size_t i = 0; i < chat.assistant.size(); ++i) {
        const TextSpan& span = chat.assistant[i];
        spans_[chat.messages[i]].push_back(std::string_view(chat.text).substr(span.begin, span.end - span.begin));
      }
    }
  }

  // Adds to sure() and suspected() what seems to be left out.
  void Tools(const OrderedJson& tools) {
    for (const std::string& name : FunctionsOf(tools)) {
      if (IsMissing(name, "tools")) return sure_.push_back({"tools", std::nullopt});
      all_.NextMessage();
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
    all_.NextMessage();
  }

  std::vector<UnprintedField>& sure() { return sure_; }
  const std::vector<Suspect>& suspected() const { return suspected_; }

 private:
  // What is not searched any more counts as printed.
  bool IsMissing(std::string_view text, const std::string& kind) {
    return all_.Has(text, kind) == PrintedTexts::Answer::kNo;
  }

  // Not in the text of the turn that counts.
  bool IsMissingIn(size_t m, std::string_view text, const std::string& kind) {
    const auto has = [&](std::string_view span) { return PrintedTexts::Shows(span, text); };
    if (std::any_of(spans_[m].begin(), spans_[m].end(), has)) return false;
    return !all_counts_ || IsMissing(text, kind);
  }

  void Reasoning(size_t m) {
    if (spans_[m].empty() && !all_counts_) return;
    std::vector<std::string_view> thoughts;
    if (const OrderedJson* reasoning = ReasoningOf(messages_[m])) AddTexts(*reasoning, thoughts);
    const auto content = messages_[m].find("content");
    if (content != messages_[m].end() && content->is_string()) {
      thoughts.push_back(SplitThought(content->get_ref<const std::string&>()).thought);
    }
    const auto missing = [&](std::string_view thought) { return IsMissingIn(m, thought, "reasoning"); };
    if (std::any_of(thoughts.begin(), thoughts.end(), missing)) sure_.push_back({"reasoning", m});
  }

  void Calls(size_t m) {
    const auto calls = messages_[m].find("tool_calls");
    if (calls == messages_[m].end()) return;
    const std::vector<std::string> names = FunctionsOf(*calls);
    const auto missing = [&](const std::string& name) {
      return spans_[m].empty() ? IsMissing(name, "tool_calls") : IsMissingIn(m, name, "tool_calls");
    };
    if (std::any_of(names.begin(), names.end(), missing)) sure_.push_back({"tool_calls", m});
  }

  void Field(size_t m, const std::string& key, const OrderedJson& value) {
    std::vector<std::string_view> parts;
    const bool content = key == "content" && value.is_string();
    if (content) {
      parts.push_back(SplitThought(value.get_ref<const std::string&>()).said);
    } else {
      AddTexts(value, parts);
    }
    std::erase_if(parts, IsBlank);
    if (parts.empty()) return;
    // Templates print the fields of one role alike.
    const auto role = messages_[m]["role"].get<std::string>();
    bool searched = true;
    const auto found = [&](std::string_view part) {
      const PrintedTexts::Answer answer = all_.Has(part, key + " of " + role);
      searched &= answer != PrintedTexts::Answer::kNotSearched;
      return answer == PrintedTexts::Answer::kYes;
    };
    if (std::none_of(parts.begin(), parts.end(), found)) suspected_.push_back({key, m, role, searched});
  }

  const OrderedJson& messages_;
  const bool all_counts_;
  PrintedTexts all_;
  std::vector<std::vector<std::string_view>> spans_;  // that count, by message
  std::vector<UnprintedField> sure_;
  std::vector<Suspect> suspected_;
};

// Whether the template prints the same with these fields as without them. False if that cannot be found out.
class Comparison {
 public:
  Comparison(const ChatTemplate& chat_template, const OrderedJson& messages, const OrderedJson& tools,
             const ChatOptions& options)
      : template_(chat_template), messages_(messages), tools_(tools), options_(options), with_(Render(messages)) {}

  bool IsSame(const Suspects& fields) const {
    if (!with_.ok()) return false;
    OrderedJson without = messages_;
    for (const Suspect* field : fields) {
      OrderedJson& message = without[field->message];
      if (field->name == "content") {
        message["content"] = kOtherContent;
      } else {
        message.erase(field->name);
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

// The suspects of which the template prints nothing: all of them or, where it prints some in another way, those of one
// name, of one role and so on, as far as the checks suffice. Those of assistants come last: their turns that count are
// printed.
Suspects Unprinted(const Comparison& comparison, const std::vector<Suspect>& suspected) {
  using Key = std::string (*)(const Suspect&);
  constexpr Key kFiner[] = {
      // Checked in the order of these texts.
      [](const Suspect&) { return std::string(); },
      [](const Suspect& s) { return s.name; },
      [](const Suspect& s) { return (s.role == "assistant" ? "last " : "first ") + s.role; },
      [](const Suspect& s) { return std::string(s.searched ? "first" : "last"); },
      [](const Suspect& s) { return fmt::format("{:08}", s.message); },
  };
  std::vector<Suspects> groups(1);
  for (const Suspect& suspect : suspected) groups.front().push_back(&suspect);
  Suspects out;
  size_t checks = 0;
  for (const Key key : kFiner) {
    std::vector<Suspects> printed;
    for (const Suspects& group : groups) {
      std::map<std::string, Suspects> parts;
      for (const Suspect* suspect : group) parts[key(*suspect)].push_back(suspect);
      for (auto& [called, part] : parts) {
        const bool differs = parts.size() == 1 && checks > 0;  // the group was checked
        if (!differs && ++checks > kMostChecks) break;
        if (!differs && comparison.IsSame(part)) {
          out.insert(out.end(), part.begin(), part.end());
        } else if (part.size() > 1) {
          printed.push_back(std::move(part));
        }
      }
    }
    groups = std::move(printed);
  }
  std::sort(out.begin(), out.end());  // as they were found
  return out;
}

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
  if (search.suspected().empty()) return out;
  const Comparison comparison(chat_template, messages, tools, options);
  for (const Suspect* field : Unprinted(comparison, search.suspected())) out.push_back({field->name, field->message});
  return out;
}

}  // namespace temper
