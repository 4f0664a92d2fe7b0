#include "run/ollama_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {
namespace {

using Message = std::pair<const char*, std::string>;  // role, content

// The texts around each role's messages.
struct Frame {
  std::string before, after;
};
struct Form {
  std::string no_system;  // where the first message is none of the system's
  Frame system, user, assistant;
  std::string prompt;  // behind the last message

  const Frame& Of(std::string_view role) const { return role == "system" ? system : role == "user" ? user : assistant; }
  std::string Print(const std::vector<Message>& messages) const {
    std::string text = messages.front().first == std::string_view("system") ? "" : no_system;
    for (const auto& [role, content] : messages) text += Of(role).before + content + Of(role).after;
    return text + prompt;
  }
};

class Finder {
 public:
  Finder(const ChatTemplate& chat_template, bool adds_bos)
      : template_(chat_template), bos_(adds_bos ? chat_template.SpecialToken("bos_token") : "") {}

  std::optional<Form> Find() const {
    const std::string s = "systemtext", u = "usertext", a = "answertext";
    const auto of_user = Print({{"user", u}}, false), prompted = Print({{"user", u}}, true);
    const auto answered = Print({{"user", u}, {"assistant", a}}, false);
    const auto twice = Print({{"user", u}, {"assistant", a}, {"user", u}}, false);
    const auto of_system = Print({{"system", s}, {"user", u}}, false);
    if (!of_user || !prompted || !answered || !twice || !of_system || !prompted->starts_with(*of_user)) {
      return std::nullopt;
    }
    Form form;
    form.prompt = prompted->substr(of_user->size());
    const size_t at_user = of_user->find(u), at_answer = answered->find(a), at_system = of_system->find(s);
    const size_t at_second = twice->rfind(u), behind_system = of_system->find(u);
    if (at_user == of_user->npos || at_answer == answered->npos || at_system == of_system->npos ||
        behind_system == of_system->npos || at_second <= at_answer || behind_system < at_system) {
      return std::nullopt;
    }
    form.user.after = of_user->substr(at_user + u.size());
    form.assistant.after = answered->substr(at_answer + a.size());
    const std::string between = answered->substr(at_user + u.size(), at_answer - at_user - u.size());
    const std::string next = twice->substr(at_answer + a.size(), at_second - at_answer - a.size());
    const std::string after_system = of_system->substr(at_system + s.size(), behind_system - at_system - s.size());
    if (!between.starts_with(form.user.after) || !next.starts_with(form.assistant.after)) return std::nullopt;
    form.assistant.before = between.substr(form.user.after.size());
    form.user.before = next.substr(form.assistant.after.size());
    const std::string first = of_user->substr(0, at_user);
    if (!first.ends_with(form.user.before) || !after_system.ends_with(form.user.before)) return std::nullopt;
    form.no_system = first.substr(0, first.size() - form.user.before.size());
    form.system = {of_system->substr(0, at_system),
                   after_system.substr(0, after_system.size() - form.user.before.size())};
    return Holds(form) ? std::optional(form) : std::nullopt;
  }

 private:
  // Without the BOS token in front. nullopt: not printed, or otherwise on another day.
  std::optional<std::string> Print(const std::vector<Message>& messages, bool prompt) const {
    OrderedJson json = OrderedJson::array();
    for (const auto& [role, content] : messages) json.push_back({{"role", role}, {"content", content}});
    const auto text = template_.Render(json, nullptr, prompt);
    ChatOptions later;
    later.today.tm_year += 60;
    later.today.tm_mon = 6;
    later.today.tm_mday = 15;
    const auto another = template_.Render(json, nullptr, prompt, later);
    if (!text.ok() || !another.ok() || *another != *text) return std::nullopt;
    return !bos_.empty() && text->starts_with(bos_) ? text->substr(bos_.size()) : *text;
  }

  bool Holds(const Form& form) const {
    const std::vector<std::vector<Message>> conversations = {
        {{"user", "a b"}},
        {{"user", " spaces\n"}},
        {{"system", "be brief"}, {"user", "c"}},
        {{"user", "d"}, {"assistant", "e\nf"}, {"user", "g"}},
        {{"system", "h"}, {"user", "i"}, {"assistant", "j"}, {"user", "k"}, {"assistant", "l"}, {"user", "m"}},
        // Templates that leave reasoning out, read switches, or trim.
        {{"user", "n"}, {"assistant", "<think>\no\n</think>\n\np"}, {"user", "q"}},
        {{"system", " /no_think r\n"}, {"user", "s /think"}},
        {{"user", "t"}, {"assistant", " u\n"}, {"user", "v"}},
    };
    for (const auto& messages : conversations) {
      if (Print(messages, true) != form.Print(messages)) return false;
    }
    return true;
  }

  const ChatTemplate& template_;
  const std::string bos_;
};

// As text of a Go template; "{{" begins code there.
std::string Escaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "{{") {
      out += R"({{ "{{" }})";
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::optional<std::string> OllamaTemplate(const ChatTemplate& chat_template, bool adds_bos) {
  const auto form = Finder(chat_template, adds_bos).Find();
  if (!form) return std::nullopt;
  for (const Frame* frame : {&form->system, &form->user, &form->assistant}) {
    if (frame->before.ends_with('{')) return std::nullopt;  // Go would read one brace too many
  }
  std::string text;
  if (!form->no_system.empty()) {
    text += fmt::format("{{{{ if ne (index .Messages 0).Role \"system\" }}}}{}{{{{ end }}}}", Escaped(form->no_system));
  }
  text += "{{ range .Messages }}";
  const char* condition = "if";
  for (const auto& [role, frame] :
       {std::pair{"system", &form->system}, {"user", &form->user}, {"assistant", &form->assistant}}) {
    text += fmt::format("{{{{ {} eq .Role \"{}\" }}}}{}{{{{ .Content }}}}{}", condition, role, Escaped(frame->before),
                        Escaped(frame->after));
    condition = "else if";
  }
  text += "{{ end }}{{ end }}" + Escaped(form->prompt);
  if (text.find("\"\"\"") != text.npos || text.ends_with('"')) return std::nullopt;
  return text;
}

}  // namespace temper
