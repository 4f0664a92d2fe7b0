#include "config/shell_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

namespace temper {
namespace {

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// The length of the NAME of "NAME=VALUE", or 0.
size_t NameOfAssignment(std::string_view word) {
  size_t end = 0;
  while (end < word.size() && IsNameCharacter(word[end])) ++end;
  const bool named = end > 0 && !std::isdigit(static_cast<unsigned char>(word[0]));
  return named && end < word.size() && word[end] == '=' ? end : 0;
}

class ShellReader {
 public:
  ShellReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<std::vector<ScriptCommand>> Read() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        EndCommand();
        ++line_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        EndWord();
      } else if (c == ';' || c == '&' || c == '|') {
        EndCommand();
      } else if (c == '>' || c == '<') {
        SkipRedirection();
      } else if (c == '#' && !in_word_) {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (c == '(' && in_word_ && NameOfAssignment(word_.text) + 1 == word_.text.size()) {
        list_ = word_.text.substr(0, word_.text.size() - 1);
        in_word_ = false;
        EndCommand();
      } else if (c == ')' && !list_.empty()) {
        EndWord();
        variables_[std::exchange(list_, "")] = std::exchange(command_.words, {});
      } else {
        TEMPER_RETURN_IF_ERROR(ReadPart());
      }
    }
    EndCommand();
    return std::move(commands_);
  }

 private:
  ScriptWord& Word() {
    if (!in_word_) word_ = {.line = line_};
    in_word_ = true;
    return word_;
  }

  // "2>&1", "> FILE": leaves at_ at its last character.
  void SkipRedirection() {
    const bool descriptor = in_word_ && word_.text.find_first_not_of("0123456789") == std::string::npos;
    if (descriptor) in_word_ = false;
    EndWord();
    const auto next = [&] { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\n'; };
    while (next() == '>' || next() == '<' || next() == '&' || next() == ' ') ++at_;
    while (next() != ' ' && next() != '\n' && next() != ';' && next() != '|') ++at_;
  }

  // At one of: a backslash, a quote, a variable, any other character.
  Status ReadPart() {
    const char c = text_[at_];
    if (c == '\\') {
      if (at_ + 1 == text_.size()) return OkStatus();
      if (text_[++at_] != '\n') return Word().text += text_[at_], OkStatus();
      ++line_;
    } else if (c == '\'' || c == '"') {
      return ReadQuoted(c);
    } else if (c == '$' || c == '`') {
      Expand(/*quoted=*/false);
    } else {
      Word().text += c;
    }
    return OkStatus();
  }

  Status ReadQuoted(char quote) {
    Word();
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (quote == '"' && c == '\\' && at_ + 1 < text_.size()) {
        const char next = text_[++at_];
        if (next == '\n') {
          ++line_;
        } else {
          Word().text += next;
        }
      } else if (quote == '"' && (c == '$' || c == '`')) {
        Expand(/*quoted=*/true);
      } else {
        Word().text += c;
      }
    }
    if (at_ == text_.size()) return InvalidArgument(fmt::format("{}: a quote is not closed", file_));
    return OkStatus();
  }

  // At a '$' or '`'; leaves at_ at its last character.
  void Expand(bool quoted) {
    const std::string_view rest = text_.substr(at_);
    size_t end = 1;
    std::string name, fallback;
    bool has_fallback = false;
    if (rest.starts_with("${")) {
      end = std::min(rest.find('}'), rest.size() - 1) + 1;
      std::string_view inside = rest.substr(2, end - 3);
      if (inside.ends_with("[@]") || inside.ends_with("[*]")) inside.remove_suffix(3);
      size_t named = 0;
      while (named < inside.size() && IsNameCharacter(inside[named])) ++named;
      name = inside.substr(0, named);
      std::string_view form = inside.substr(named);
      has_fallback = form.starts_with(":-") || form.starts_with("-");
      if (has_fallback) fallback = form.substr(form.find('-') + 1);
      if (!form.empty() && !has_fallback) name.clear();  // another form: as it is written
      if (fallback.find('$') != fallback.npos) has_fallback = false;
    } else if (rest.starts_with("$(")) {
      int depth = 0;
      for (end = 1; end < rest.size(); ++end) {
        depth += rest[end] == '(' ? 1 : rest[end] == ')' ? -1 : 0;
        if (depth == 0) break;
      }
      end = std::min(end + 1, rest.size());
    } else if (rest[0] == '`') {
      end = std::min(rest.find('`', 1), rest.size() - 1) + 1;
    } else if (rest.starts_with("$@") || rest.starts_with("$*")) {
      at_ += 1;  // what the script is given: nothing, here
      is_arguments_ = true;
      return;
    } else {
      while (end < rest.size() && IsNameCharacter(rest[end])) ++end;
      name = rest.substr(1, end - 1);
    }
    for (const char c : rest.substr(0, end)) line_ += c == '\n';
    at_ += end - 1;
    if (const auto found = variables_.find(name); !name.empty() && found != variables_.end()) {
      Insert(found->second, quoted);
    } else if (has_fallback) {
      Insert({{.text = fallback, .line = line_}}, quoted);
    } else {
      Word().text += rest.substr(0, end);
      Word().is_open = true;
    }
  }

  // The words of a variable. Not quoted, its spaces end words.
  void Insert(const std::vector<ScriptWord>& words, bool quoted) {
    for (size_t k = 0; k < words.size(); ++k) {
      if (k > 0) EndWord();
      for (const char c : words[k].text) {
        const bool ends = !quoted && (c == ' ' || c == '\t' || c == '\n');
        if (ends) EndWord();
        if (!ends) Word().text += c;
      }
      if (in_word_) word_.is_open |= words[k].is_open;
    }
  }

  void EndWord() {
    const bool is_arguments = std::exchange(is_arguments_, false);
    if (!std::exchange(in_word_, false)) return;
    if (is_arguments && word_.text.empty()) return;  // "$@"
    if (list_.empty() && command_.words.empty() && NameOfAssignment(word_.text) > 0) {
      command_.assignments.push_back(std::move(word_));
    } else {
      command_.words.push_back(std::move(word_));
    }
  }

  void EndCommand() {
    EndWord();
    if (!list_.empty()) return;  // a list may have several lines
    static constexpr std::string_view kBegins[] = {"if", "then", "else", "do", "while", "until", "!", "{", "time"};
    while (!command_.words.empty() && std::count(std::begin(kBegins), std::end(kBegins), command_.words[0].text)) {
      command_.words.erase(command_.words.begin());
    }
    const std::string first = command_.words.empty() ? "" : command_.words[0].text;
    if (first.empty()) {
      for (const ScriptWord& word : command_.assignments) Assign(word);
    } else if (first == "export" || first == "readonly" || first == "declare" || first == "local") {
      for (const ScriptWord& word : command_.words) Assign(word);
    } else {
      commands_.push_back(std::move(command_));
    }
    command_ = {};
  }

  void Assign(const ScriptWord& word) {
    const size_t name = NameOfAssignment(word.text);
    if (name == 0) return;
    ScriptWord value = word;
    value.text.erase(0, name + 1);
    variables_[word.text.substr(0, name)] = {std::move(value)};
  }

  const std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
  bool in_word_ = false, is_arguments_ = false;
  ScriptWord word_;
  ScriptCommand command_;
  std::string list_;  // the name of the list whose words are read: NAME=(...)
  std::map<std::string, std::vector<ScriptWord>> variables_;
  std::vector<ScriptCommand> commands_;
};

}  // namespace

Result<std::vector<ScriptCommand>> ReadShellScript(std::string_view text, const std::string& file) {
  return ShellReader(text, file).Read();
}

}  // namespace temper
