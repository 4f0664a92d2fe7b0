#include "data/template/value_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

Value TextFromJson(const std::string& text) {
  if (!utf8::IsValid(text)) Fail("a text of the data is not valid UTF-8");
  return Value::String(text);
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style)
      : style_(style), item_separator_(style.item_separator.value_or(style.indent ? "," : ", ")) {}

  void Write(const Value& v, int level) {
    Budget::Step();
    switch (v.type()) {
      case Type::kNone:
        return Append("null");
      case Type::kBool:
        return Append(v.boolean() ? "true" : "false");
      case Type::kInt:
        return Append(std::to_string(v.integer()));
      case Type::kFloat:
        return Append(FloatText(v.number()));
      case Type::kString:
        return Append(Quoted(v.text()));
      case Type::kList:
      case Type::kTuple:
        return WriteList(v.items(), level);
      case Type::kDict:
        return WriteDict(v.dict(), level);
      default:
        Fail(fmt::format("Object of type {} is not JSON serializable", TypeName(v)));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void Append(std::string_view piece) { AppendText(out_, piece); }

  void NewLine(int level) {
    if (!style_.indent) return;
    Append("\n");
    for (int i = 0; i < level; ++i) Append(*style_.indent);
  }

  void WriteList(const std::vector<Value>& items, int level) {
    if (items.empty()) return Append("[]");
    Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Append(item_separator_);
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    Append("]");
  }

  void WriteDict(const DictObject& dict, int level) {
    if (dict.entries.empty()) return Append("{}");
    auto entries = dict.entries;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return Less(a.first, b.first); });
    }
    Append("{");
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) Append(item_separator_);
      first = false;
      NewLine(level + 1);
      Append(Quoted(KeyText(key)));
      Append(style_.key_separator);
      Write(value, level + 1);
    }
    NewLine(level);
    Append("}");
  }

  static std::string FloatText(double v) {
    if (std::isnan(v)) return "NaN";
    if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(v);
  }

  static std::string KeyText(const Value& key) {
    switch (key.type()) {
      case Type::kString:
        return key.text();
      case Type::kNone:
        return "null";
      case Type::kBool:
        return key.boolean() ? "true" : "false";
      case Type::kInt:
        return std::to_string(key.integer());
      case Type::kFloat:
        return FloatText(key.number());
      default:
        Fail(fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
    }
  }

  std::string Quoted(std::string_view text) const {
    std::string out = "\"";
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      const char32_t c = NextCodePoint(text, at);
      switch (c) {
        case '"':
          out += "\\\"";
          continue;
        case '\\':
          out += "\\\\";
          continue;
        case '\n':
          out += "\\n";
          continue;
        case '\r':
          out += "\\r";
          continue;
        case '\t':
          out += "\\t";
          continue;
        case '\f':
          out += "\\f";
          continue;
        case '\b':
          out += "\\b";
          continue;
        default:
          break;
      }
      if (c < 0x20 || (c > 0x7e && c < 0x10000 && style_.ensure_ascii)) {
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else if (c >= 0x10000 && style_.ensure_ascii) {
        const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
      } else {
        out += text.substr(start, at - start);
      }
    }
    return out + '"';
  }

  const JsonStyle& style_;
  const std::string item_separator_;
  std::string out_;
};

}  // namespace

namespace {

Value Convert(const OrderedJson& json, int depth) {
  if (depth > kMaxNesting) Fail(fmt::format("data nested deeper than {} levels", kMaxNesting));
  switch (json.type()) {
    case OrderedJson::value_t::null:
    case OrderedJson::value_t::discarded:
      return Value();
    case OrderedJson::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const uint64_t v = json.get<uint64_t>();
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        FailUnsupported(fmt::format("the integer {} of the data does not fit 64 bits; write it as a string", v));
      }
      return Value::Int(static_cast<int64_t>(v));
    }
    case OrderedJson::value_t::number_float:
      return Value::Float(json.get<double>());
    case OrderedJson::value_t::string:
      return TextFromJson(json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const OrderedJson& item : json) items.push_back(Convert(item, depth + 1));
      return Value::List(std::move(items));
    }
    case OrderedJson::value_t::object: {
      DictBuilder dict;
      for (const auto& [key, value] : json.items()) dict.Set(TextFromJson(key), Convert(value, depth + 1));
      return dict.Build();
    }
    case OrderedJson::value_t::binary:
      break;
  }
  Fail("binary JSON has no meaning in a template");
}

}  // namespace

Value FromJson(const OrderedJson& json) {
  return Convert(json, 0);
}

std::string ToJson(const Value& v, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(v, 0);
  return writer.Take();
}

}  // namespace temper::jinja
