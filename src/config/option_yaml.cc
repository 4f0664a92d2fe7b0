#include "config/option_yaml.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>

#include "config/mistakes.h"
#include "format/quoted.h"
#include "format/yaml.h"

namespace temper {
namespace {

// Escapes a key for a JSON pointer (RFC 6901).
std::string Escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

class YamlReader {
 public:
  YamlReader(const YamlDocument& document, const std::string& file, const OptionSet& options)
      : document_(document),
        file_(file),
        options_(options),
        mistakes_(file, "temper import turns a file of LLaMA-Factory, Axolotl or TRL into one for Temper") {}

  // `section` is "" or "lora."; `pointer` the place of `object` in the document. Collects mistakes.
  void ReadMapping(const OrderedJson& object, const std::string& section, const std::string& pointer) {
    for (auto it = object.begin(); it != object.end(); ++it) {
      const std::string place = pointer + "/" + Escaped(it.key());
      mistakes_.Add(ReadKey(section + it.key(), it.value(), place));
    }
  }
  Status status() const { return mistakes_.status(); }

 private:
  Status ReadKey(const std::string& name, const OrderedJson& value, const std::string& place) {
    const Option* const option = options_.Find(name);
    // The line of a key takes time that grows with the file, and advice compares the name with all options. Files may
    // have 100,000 unknown keys: both are given only where they are shown.
    if (option == nullptr && !mistakes_.TellsMore() && !options_.IsSection(name)) return InvalidArgument("unknown key");
    const std::string where = fmt::format("{} line {}", file_, document_.LineOf(place));
    if (option != nullptr) {
      if (!seen_.insert(option->name).second) {
        return InvalidArgument(fmt::format("{}: {} was given before; keep one of the two", where, option->name));
      }
      return SetFromJson(*option, value, where);
    }
    if (options_.IsSection(name)) {
      if (value.is_null()) return OkStatus();  // a heading whose lines are all commented out
      if (!value.is_object()) {
        return InvalidArgument(fmt::format("{}: {} is a section: its keys follow, indented", where, name));
      }
      ReadMapping(value, name + ".", place);
      return OkStatus();
    }
    mistakes_.CountForeign(options_.IsForeign(name));
    return InvalidArgument(fmt::format("{}: unknown key {}; {}", where, Quoted(name), options_.Advice(name)));
  }

  const YamlDocument& document_;
  const std::string& file_;
  const OptionSet& options_;
  std::set<std::string> seen_;
  Mistakes mistakes_;
};

}  // namespace

Status ReadYamlOptions(std::string_view text, const std::string& file, const OptionSet& options) {
  TEMPER_ASSIGN_OR_RETURN(const auto document, ParseYaml(text, file));
  const OrderedJson& root = document.value;
  if (root.is_null()) return OkStatus();  // an empty file, or comments only
  if (!root.is_object()) {
    return InvalidArgument(fmt::format("{}: should be lines of 'key: value', but is {}", file,
                                       root.is_array() ? "a list" : "a single value"));
  }
  YamlReader reader(document, file, options);
  reader.ReadMapping(root, "", "");
  return reader.status();
}

std::string PrintYamlOptions(const OptionSet& options, const std::map<std::string, std::string>& notes,
                             PrintedOptions printed) {
  std::string out;
  std::string section;
  for (const OptionGroup& group : options.groups()) {
    std::string lines;
    for (const Option& option : group.options) {
      const auto note = notes.find(option.name);
      if (printed == PrintedOptions::kWithNotes && note == notes.end()) continue;
      if (!option.unsaid.empty() && note == notes.end() && ValueAsYaml(option) == option.unsaid) continue;
      const size_t dot = option.name.find('.');
      const std::string own_section = dot == std::string::npos ? "" : option.name.substr(0, dot);
      if (own_section != section && !own_section.empty()) lines += own_section + ":\n";
      section = own_section;
      lines += section.empty() ? option.name : "  " + option.name.substr(dot + 1);
      lines += ": " + ValueAsYaml(option);
      if (note != notes.end() && !note->second.empty()) lines += "  # " + note->second;
      lines += '\n';
    }
    if (!lines.empty()) out += fmt::format("{}# {}\n{}", out.empty() ? "" : "\n", group.title, lines);
  }
  return out;
}

}  // namespace temper
