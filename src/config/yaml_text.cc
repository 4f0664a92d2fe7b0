#include "config/yaml_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

namespace temper {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}

bool MeansUnset(std::string_view text) {
  return text == "~" || EqualIgnoringCase(text, "null") || EqualIgnoringCase(text, "none") ||
         EqualIgnoringCase(text, "auto");
}

std::string NumberAsYaml(double v) {
  std::string text = fmt::format("{}", v);
  // YAML 1.1 parsers read 1e-08 as text: they need the decimal point.
  const size_t e = text.find('e');
  if (e != text.npos && text.find('.') == text.npos) text.insert(e, ".0");
  return text;
}

std::string TextAsYaml(std::string_view text) {
  const bool plain_characters = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' || c == '-';
  });
  const bool plain_start = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/' ||
                                             text.starts_with("./") || text.starts_with("../"));
  bool keyword = MeansUnset(text);
  for (const std::string_view word : {"true", "false", "yes", "no", "on", "off", "y", "n"}) {
    keyword = keyword || EqualIgnoringCase(text, word);
  }
  if (plain_characters && plain_start && !keyword) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace temper
