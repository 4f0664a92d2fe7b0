#include "data/template/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "data/template/access.h"
#include "data/template/digits.h"
#include "data/template/text_search.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  int64_t width = 0, precision = -1;
};

bool IsAlign(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

Spec ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  if (!text.empty()) {
    size_t after = 0;
    NextCodePoint(text, after);
    if (after < text.size() && IsAlign(text[after])) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      at = after + 1;
    } else if (IsAlign(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto skip = [&](char c) { return at < text.size() && text[at] == c && ++at; };
  for (char c : {'+', '-', ' '}) {
    if (skip(c)) {
      spec.sign = c;
      break;
    }
  }
  spec.alternate = skip('#');
  if (skip('0')) {
    spec.zero = true;
    if (!spec.align) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = std::max<int64_t>(ReadNumber(text, at), 0);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
  if (skip('.')) {
    spec.precision = ReadNumber(text, at);
    if (spec.precision < 0) Fail("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) Fail(fmt::format("Invalid format specifier '{}'", text));
  return spec;
}

std::string Group(const std::string& digits, char separator, size_t every) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string Align(const Spec& spec, const std::string& sign, const std::string& body, char fallback) {
  const int64_t missing = spec.width - CountCodePoints(sign) - CountCodePoints(body);
  const char align = spec.align ? spec.align : fallback;
  const int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string out;
  AppendRepeated(out, spec.fill, before);
  out += sign;
  if (align == '=') AppendRepeated(out, spec.fill, missing);
  AppendText(out, body);
  if (align == '<' || align == '^') AppendRepeated(out, spec.fill, missing - before);
  return out;
}

std::string FormatNumber(const Value& v, Spec spec) {
  const bool integer_type = spec.type && std::string_view("bcdoxXn").find(spec.type) != std::string_view::npos;
  const bool as_integer = v.IsInteger() && (spec.type == 0 || integer_type);
  if (!v.IsInteger() && integer_type && spec.type != 'n') {
    Fail(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
  }
  std::string sign, digits;
  if (as_integer) {
    if (spec.precision >= 0) Fail("Precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      if (v.integer() < 0 || v.integer() >= 0x110000) Fail("%c arg not in range(0x110000)");
      utf8::Append(digits, static_cast<char32_t>(v.integer()));
      return Align(spec, "", digits, '>');
    }
    digits = IntegerDigits(v.integer(), spec.type);
    const bool decimal = spec.type == 0 || spec.type == 'd' || spec.type == 'n';
    if (spec.grouping == ',' && !decimal) Fail(fmt::format("Cannot specify ',' with '{}'.", spec.type));
    sign = v.integer() < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    if (spec.alternate && !decimal) sign += std::string("0") + spec.type;
    if (spec.grouping) digits = Group(digits, spec.grouping, decimal ? 3 : 4);
  } else {
    const double d = v.number();
    const char type = spec.type == 'n' ? 'g' : spec.type;
    if (type && std::string_view("eEfFgG%").find(type) == std::string_view::npos) {
      Fail(fmt::format("Unknown format code '{}' for object of type '{}'", type, TypeName(v)));
    }
    if (type == 0 && spec.precision < 0) {
      digits = FloatRepr(std::fabs(d));
    } else if (type == 0) {
      // Like 'g', but a number without an exponent keeps a digit after the point.
      digits = FloatDigits(d, 'g', std::max<int64_t>(spec.precision, 1), spec.alternate);
      if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
    } else if (type == '%') {
      digits = FloatDigits(d * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
    } else {
      digits = FloatDigits(d, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    }
    sign = std::signbit(d) && !std::isnan(d) ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    if (spec.grouping) digits = Group(digits, spec.grouping, 3);
  }
  // Zeros that fill a grouped number are grouped as well.
  if (spec.grouping && spec.fill == "0" && spec.align == '=' && spec.width > 0) {
    if (spec.width > kMaxPrecision) Fail("the width of a grouped number is too large");
    Budget::Charge(spec.width * spec.width);  // what the groups below write
    const size_t every = as_integer && spec.type && spec.type != 'd' && spec.type != 'n' ? 4 : 3;
    digits.erase(std::remove(digits.begin(), digits.end(), spec.grouping), digits.end());
    while (true) {
      const std::string grouped = Group(digits, spec.grouping, every);
      if (static_cast<int64_t>(grouped.size() + sign.size()) >= spec.width) return sign + grouped;
      digits.insert(0, 1, '0');
    }
  }
  return Align(spec, sign, digits, '>');
}

std::string FormatValue(const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return Str(v);
  if (v.IsNumber()) return FormatNumber(v, ParseSpec(spec_text));
  if (!v.IsString()) Fail(fmt::format("unsupported format string passed to {}.__format__", TypeName(v)));
  Spec spec = ParseSpec(spec_text);
  if (spec.type && spec.type != 's') {
    Fail(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
  }
  if (spec.align == '=' && !spec.zero) Fail("'=' alignment not allowed in string format specifier");
  if (spec.align == '=') spec.align = '<';
  std::string text = v.text();
  if (spec.precision >= 0) text.resize(ByteOffset(text, spec.precision));
  return Align(spec, "", text, '<');
}

class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  std::string Run(std::string_view format, int depth) {
    if (depth > 2) Fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
        AppendText(out, format.substr(at, 1));
        at += 2;
      } else if (c == '}') {
        Fail("Single '}' encountered in format string");
      } else if (c == '{') {
        AppendText(out, Field(format, ++at, depth));
      } else {
        const size_t end = std::min(format.find_first_of("{}", at), format.size());
        AppendText(out, format.substr(at, end - at));
        at = end;
      }
    }
    return out;
  }

 private:
  // The replacement field whose first character is at `at`; moves past its closing brace.
  std::string Field(std::string_view format, size_t& at, int depth) {
    const size_t begin = at;
    size_t conversion = format.npos, colon = format.npos;
    int open = 1;
    bool bracket = false;
    for (; at < format.size(); ++at) {
      const char c = format[at];
      if (colon == format.npos && c == '[') bracket = true;
      if (c == ']') bracket = false;
      if (bracket) continue;
      if (c == '{') ++open;
      if (c == '}' && --open == 0) break;
      if (colon == format.npos && c == '!' && conversion == format.npos) conversion = at;
      if (colon == format.npos && c == ':') colon = at;
    }
    if (open != 0) Fail("expected '}' before end of string");
    const size_t name_end = std::min({conversion, colon, at});
    Value value = Lookup(format.substr(begin, name_end - begin));
    if (conversion < colon && conversion != format.npos) {
      const char kind = conversion + 1 < at ? format[conversion + 1] : 0;
      if (conversion + 2 != std::min(colon, at)) Fail("expected ':' after conversion specifier");
      if (kind == 'r')
        value = Value::String(Repr(value));
      else if (kind == 's')
        value = Value::String(Str(value));
      else if (kind == 'a')
        value = Value::String(AsciiRepr(value));
      else
        Fail("Unknown conversion specifier");
    }
    const std::string spec = colon == format.npos ? "" : Run(format.substr(colon + 1, at - colon - 1), depth + 1);
    ++at;
    return FormatValue(value, spec);
  }

  Value Lookup(std::string_view field) {
    size_t at = std::min(field.find_first_of(".["), field.size());
    const std::string_view first = field.substr(0, at);
    size_t digits = 0;
    const int64_t number = ReadNumber(first, digits);
    Value value;
    if (first.empty() || (number >= 0 && digits == first.size())) {
      const bool automatic = first.empty();
      if (numbering_ != 0 && (numbering_ == 1) != automatic) {
        Fail("cannot switch between automatic field numbering and manual field specification");
      }
      numbering_ = automatic ? 1 : 2;
      const auto index = static_cast<size_t>(automatic ? next_++ : number);
      if (index >= arguments_.positional.size()) {
        Fail(fmt::format("Replacement index {} out of range for positional args tuple", index));
      }
      value = arguments_.positional[index];
    } else {
      const auto it = std::find_if(arguments_.keywords.begin(), arguments_.keywords.end(),
                                   [&](const auto& k) { return k.first == first; });
      if (it == arguments_.keywords.end()) Fail(fmt::format("the format names '{}', which is not given", first));
      value = it->second;
    }
    while (at < field.size()) {
      if (field[at] == '.') {
        const size_t end = std::min(field.find_first_of(".[", at + 1), field.size());
        value = GetAttribute(value, Value::String(std::string(field.substr(at + 1, end - at - 1))));
        at = end;
      } else if (field[at] == '[') {
        const size_t end = field.find(']', at);
        if (end == field.npos) Fail("expected '}' before end of string");
        const std::string_view key = field.substr(at + 1, end - at - 1);
        size_t used = 0;
        const int64_t index = ReadNumber(key, used);
        value = GetItem(value, index >= 0 && used == key.size() ? Value::Int(index) : Value::String(std::string(key)));
        at = end + 1;
      } else {
        Fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  const Arguments& arguments_;
  int numbering_ = 0;  // 1: "{}", 2: "{0}"
  int64_t next_ = 0;
};

}  // namespace

Value Format(const Value& format, const Arguments& arguments) {
  if (!format.markup()) return Value::String(BraceFormatter(arguments).Run(format.text(), 1));
  Arguments escaped = arguments;
  for (Value& v : escaped.positional) v = Escaped(v);
  for (auto& [name, v] : escaped.keywords) v = Escaped(v);
  return Value::String(BraceFormatter(escaped).Run(format.text(), 1), true);
}

}  // namespace temper::jinja
