// Conversions between JSON and template values.
#pragma once

#include <string>

#include "data/template/value.h"
#include "format/json.h"

namespace temper::jinja {

// Fails (throws TemplateError) for text that is not UTF-8 and integers beyond 64 bits.
Value FromJson(const OrderedJson& json);

// json.dumps's arguments, with transformers' defaults for the tojson filter.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level; absent: all on one line
  std::optional<std::string> item_separator;
  std::string key_separator = ": ";
};
std::string ToJson(const Value& v, const JsonStyle& style);

}  // namespace temper::jinja
