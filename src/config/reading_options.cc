#include "config/reading_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/yaml_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

// How "A=B,A=B", or a map, is written of one option.
struct PairsText {
  const char *name, *as_text, *as_map;
};

// Calls add(A, B) for each pair of such a value.
template <class Add>
Status ForPairs(const OrderedJson& value, const std::string& where, const PairsText& text, const Add& add) {
  const auto malformed = [&] {
    return InvalidArgument(fmt::format("{}: {} should be {} or a map such as {}, but is {}", where, text.name,
                                       text.as_text, text.as_map, Quoted(DumpJson(value))));
  };
  const auto add_one = [&](std::string_view a, std::string_view b) {
    const Status status = add(std::string(a), std::string(b));
    return status.ok() ? status : status.WithContext(fmt::format("{}, {}", where, text.name));
  };
  if (value.is_object()) {
    for (const auto& [key, of_key] : value.items()) {
      const OrderedJson list = of_key.is_array() ? of_key : OrderedJson::array({of_key});
      for (const OrderedJson& one : list) {
        if (!one.is_string()) return malformed();
        TEMPER_RETURN_IF_ERROR(add_one(key, one.get_ref<const std::string&>()));
      }
    }
    return OkStatus();
  }
  if (!value.is_string()) return malformed();
  for (std::string_view rest = value.get_ref<const std::string&>();;) {
    const std::string_view one = rest.substr(0, rest.find(','));
    const size_t equals = one.find('=');
    if (equals == one.npos) return malformed();
    TEMPER_RETURN_IF_ERROR(add_one(one.substr(0, equals), one.substr(equals + 1)));
    if (one.size() == rest.size()) return OkStatus();
    rest.remove_prefix(one.size() + 1);
  }
}

bool IsUnset(const OrderedJson& value) {
  return value.is_null() || (value.is_string() && MeansUnset(value.get_ref<const std::string&>()));
}

// "\n" and "\t" as a shell passes them on are a line break and a tab.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const bool escape = next == 'n' || next == 't' || next == '\\';
    out += !escape ? text[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    i += escape;
  }
  return out;
}

}  // namespace

std::string AsYaml(const RowColumns& columns) {
  std::vector<std::string> parts;
  for (const RowColumn& c : columns) parts.push_back(TextAsYaml(c.field) + ": " + TextAsYaml(c.column));
  return columns.empty() ? "null" : fmt::format("{{{}}}", fmt::join(parts, ", "));
}

std::string AsYaml(const RowRoles& roles) {
  std::vector<std::string> seen, parts;
  for (const RowRole& r : roles) {
    if (std::find(seen.begin(), seen.end(), r.role) != seen.end()) continue;
    seen.push_back(r.role);
    std::vector<std::string> names;
    for (const RowRole& other : roles) {
      if (other.role == r.role) names.push_back(TextAsYaml(other.name));
    }
    const std::string list = fmt::format("{}", fmt::join(names, ", "));
    parts.push_back(fmt::format("{}: {}", r.role, names.size() == 1 ? list : "[" + list + "]"));
  }
  return roles.empty() ? "null" : fmt::format("{{{}}}", fmt::join(parts, ", "));
}

Option ColumnsOption(RowColumns& columns) {
  const auto set = [&columns](const OrderedJson& value, const std::string& where, bool more) -> Status {
    RowColumns changed = more ? columns : RowColumns();
    if (!IsUnset(value)) {
      TEMPER_RETURN_IF_ERROR(
          ForPairs(value, where, {"columns", "FIELD=COLUMN,FIELD=COLUMN", "{prompt: question, completion: answer}"},
                   [&](std::string field, std::string column) {
                     return AddColumn({std::move(field), std::move(column)}, changed);
                   }));
    }
    columns = std::move(changed);
    return OkStatus();
  };
  return {.name = "columns",
          .target = Repeatable{.set = set, .as_yaml = [&columns] { return AsYaml(columns); }},
          .help =
              "columns of the data that hold the fields of rows, where they have other names: "
              "prompt=question,completion=answer.text; in YAML a map",
          .value_hint = "FIELD=COLUMN,..."};
}

Option RolesOption(RowRoles& roles) {
  const auto set = [&roles](const OrderedJson& value, const std::string& where, bool more) -> Status {
    RowRoles changed = more ? roles : RowRoles();
    if (!IsUnset(value)) {
      TEMPER_RETURN_IF_ERROR(ForPairs(value, where,
                                      {"roles", "ROLE=NAME,ROLE=NAME", "{user: customer, assistant: [agent, bot]}"},
                                      [&](std::string role, std::string name) {
                                        return AddRole({std::move(role), std::move(name)}, changed);
                                      }));
    }
    roles = std::move(changed);
    return OkStatus();
  };
  return {.name = "roles",
          .target = Repeatable{.set = set, .as_yaml = [&roles] { return AsYaml(roles); }},
          .help =
              "what the data calls the speakers of conversations, where they have other names: "
              "user=customer,assistant=agent; in YAML a map, with a list for several names",
          .value_hint = "ROLE=NAME,...",
          .unsaid = "null"};
}

Option SeparatorOption(std::string& separator) {
  const auto set = [&separator](const OrderedJson& value, const std::string& where, bool) -> Status {
    if (!value.is_null() && !value.is_string()) {
      return InvalidArgument(
          fmt::format("{}: prompt_separator should be a text such as \"\\n\", but is {}", where, DumpJson(value)));
    }
    separator = value.is_null() ? kParagraph : Unescaped(value.get_ref<const std::string&>());
    return OkStatus();
  };
  const auto as_yaml = [&separator] {
    std::string escaped;  // as `set` reads it
    for (const char c : separator) escaped += c == '\\' ? std::string(2, c) : std::string(1, c);
    return DumpJson(OrderedJson(escaped));
  };
  return {.name = "prompt_separator",
          .target = Repeatable{.set = set, .as_yaml = as_yaml},
          .help =
              "what stands between the fields that a prompt is made of, instruction, input and context: '\\n' for a "
              "line break",
          .default_text = "an empty line",
          .value_hint = "TEXT",
          .unsaid = DumpJson(OrderedJson(kParagraph))};
}

std::vector<Option> ReadingOptions(RowReading& reading) {
  return {ColumnsOption(reading.columns), RolesOption(reading.roles), SeparatorOption(reading.separator)};
}

Option LongRowsOption(LongRows& long_rows) {
  return {.name = "long_rows",
          .target = ChoiceOf(long_rows, {"split", "cut", "proportional", "drop", "error"}),
          .help =
              "what becomes of rows that are longer than max_seq_len: split: texts go on in further rows, others are "
              "cut at the end; cut: texts, too; proportional: prompt and answer of a turn are cut in proportion, as "
              "LLaMA-Factory does; drop: they are left out; error: the run ends",
          .unsaid = "split"};
}

}  // namespace temper
