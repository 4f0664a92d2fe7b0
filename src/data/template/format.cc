#include "data/template/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/utf8.h"
#include "data/template/access.h"
#include "data/template/text_search.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

// Digits after the point that anybody can want; a double has at most 1074 of them.
constexpr int64_t kMaxPrecision = 2000;

// A width, precision or index in a format text. Moves `at` behind the digits; -1 where there are none.
int64_t ReadNumber(std::string_view text, size_t& at) {
  if (at >= text.size() || text[at] < '0' || text[at] > '9') return -1;
  int64_t n = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    n = n * 10 + (text[at] - '0');
    if (n > std::numeric_limits<int32_t>::max()) Fail("a number in a format text is too large");
  }
  return n;
}

// The magnitude of v in one of C's float formats, without a sign.
std::string FloatDigits(double v, char type, int64_t precision, bool alternate) {
  v = std::fabs(v);
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(v)) return upper ? "NAN" : "nan";
  if (std::isinf(v)) return upper ? "INF" : "inf";
  if (precision > kMaxPrecision) Fail("the precision of a format is too large");
  const std::string c_format = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int size = std::snprintf(nullptr, 0, c_format.c_str(), static_cast<int>(precision), v);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), c_format.c_str(), static_cast<int>(precision), v);
  out.pop_back();
  return out;
}

uint64_t Magnitude(int64_t v) {
  return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

std::string IntegerDigits(uint64_t v, char type) {
  switch (type) {
    case 'x':
      return fmt::format("{:x}", v);
    case 'X':
      return fmt::format("{:X}", v);
    case 'o':
      return fmt::format("{:o}", v);
    case 'b':
      return fmt::format("{:b}", v);
    default:
      return fmt::format("{}", v);
  }
}

std::string AsciiRepr(const Value& v) {
  const std::string repr = Repr(v);
  std::string out;
  for (size_t at = 0; at < repr.size();) {
    const auto c = static_cast<uint32_t>(NextCodePoint(repr, at));
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += c < 0x100     ? fmt::format("\\x{:02x}", c)
             : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                           : fmt::format("\\U{:08x}", c);
    }
  }
  return out;
}

int64_t TruncateToInteger(double v) {
  if (std::isnan(v)) Fail("cannot convert float NaN to integer");
  if (std::isinf(v)) Fail("cannot convert float infinity to integer");
  if (v >= 0x1p63 || v < -0x1p63) FailUnsupported("an integer does not fit 64 bits");
  return static_cast<int64_t>(v);
}

// --- "..." % values ---

class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& values) : format_(format.text()), values_(values) {}

  std::string Run() {
    while (at_ < format_.size()) {
      const size_t percent = format_.find('%', at_);
      AppendText(out_, format_.substr(at_, percent - at_));
      if (percent == format_.npos) break;
      at_ = percent + 1;
      Specifier();
    }
    // What CPython takes for a mapping may go unused: dicts, lists, and jinja2's undefined.
    const bool may_go_unused = values_.Is(Type::kDict) || values_.Is(Type::kList) || values_.IsUndefined();
    const size_t given = values_.Is(Type::kTuple) ? values_.items().size() : 1;
    if (next_ < given && !may_go_unused) Fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Value Take() {
    if (values_.Is(Type::kTuple)) {
      if (next_ >= values_.items().size()) Fail("not enough arguments for format string");
      return values_.items()[next_++];
    }
    if (next_++ > 0) Fail("not enough arguments for format string");
    return values_;
  }

  void Specifier() {
    std::optional<Value> value;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t begin = ++at_;
      for (int open = 1; open > 0; ++at_) {
        if (at_ >= format_.size()) Fail("incomplete format key");
        open += format_[at_] == '(' ? 1 : format_[at_] == ')' ? -1 : 0;
      }
      if (!values_.Is(Type::kDict)) Fail("format requires a mapping");
      const std::string_view key = format_.substr(begin, at_ - 1 - begin);
      const Value* found = values_.dict().Find(key);
      if (!found) Fail(fmt::format("the format names '{}', which the mapping lacks", key));
      value = *found;
    }
    bool left = false, plus = false, space = false, alternate = false, zero = false;
    for (; at_ < format_.size(); ++at_) {
      const char c = format_[at_];
      if (c == '-')
        left = true;
      else if (c == '+')
        plus = true;
      else if (c == ' ')
        space = true;
      else if (c == '#')
        alternate = true;
      else if (c == '0')
        zero = true;
      else
        break;
    }
    int64_t width = Amount();
    if (width < 0 && width != -1) {
      left = true;
      width = -width;
    }
    int64_t precision = -1;
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      precision = std::max<int64_t>(Amount(), 0);
    }
    while (at_ < format_.size() && (format_[at_] == 'h' || format_[at_] == 'l' || format_[at_] == 'L')) ++at_;
    if (at_ >= format_.size()) Fail("incomplete format");
    const char type = format_[at_++];
    if (type == '%') return AppendText(out_, "%");
    const Value v = value ? *value : Take();

    std::string sign, digits;
    switch (type) {
      case 's':
        digits = Str(v);
        break;
      case 'r':
        digits = Repr(v);
        break;
      case 'a':
        digits = AsciiRepr(v);
        break;
      case 'c':
        if (v.IsString() && v.text_length() == 1) {
          digits = v.text();
        } else if (v.IsInteger() && v.integer() >= 0 && v.integer() < 0x110000) {
          utf8::Append(digits, static_cast<char32_t>(v.integer()));
        } else {
          Fail("%c requires int or char");
        }
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        RequireDefined(v);
        const bool decimal = type == 'd' || type == 'i' || type == 'u';
        if (!v.IsInteger() && !(decimal && v.Is(Type::kFloat))) {
          Fail(fmt::format("%{} format: {} is required, not {}", type, decimal ? "a real number" : "an integer",
                           TypeName(v)));
        }
        const int64_t n = v.IsInteger() ? v.integer() : TruncateToInteger(v.number());
        digits = IntegerDigits(Magnitude(n), type);
        if (precision > kMaxPrecision) Fail("the precision of a format is too large");
        if (static_cast<int64_t>(digits.size()) < precision) {
          digits.insert(0, static_cast<size_t>(precision) - digits.size(), '0');
        }
        sign = n < 0 ? "-" : plus ? "+" : space ? " " : "";
        if (alternate && !decimal) sign += std::string("0") + type;
        precision = -1;
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        RequireDefined(v);
        if (!v.IsNumber()) Fail(fmt::format("must be real number, not {}", TypeName(v)));
        digits = FloatDigits(v.number(), type, precision < 0 ? 6 : precision, alternate);
        sign = std::signbit(v.number()) && !std::isnan(v.number()) ? "-" : plus ? "+" : space ? " " : "";
        break;
      default:
        Fail(fmt::format("unsupported format character '{}'", type));
    }
    const bool is_text = type == 's' || type == 'r' || type == 'a' || type == 'c';
    if (is_text && type != 'c' && precision >= 0) digits.resize(ByteOffset(digits, precision));
    const int64_t missing = width - CountCodePoints(sign) - CountCodePoints(digits);
    if (!left && (!zero || is_text)) AppendRepeated(out_, " ", missing);
    AppendText(out_, sign);
    if (!left && zero && !is_text) AppendRepeated(out_, "0", missing);
    AppendText(out_, digits);
    if (left) AppendRepeated(out_, " ", missing);
  }

  int64_t Amount() {
    if (at_ >= format_.size() || format_[at_] != '*') return ReadNumber(format_, at_);
    ++at_;
    const Value v = Take();
    if (!v.IsInteger()) Fail("* wants int");
    if (std::abs(v.integer()) > std::numeric_limits<int32_t>::max()) Fail("a number in a format text is too large");
    return v.integer();
  }

  const std::string_view format_;
  const Value values_;
  std::string out_;
  size_t at_ = 0, next_ = 0;
};

// --- format(value, spec) ---

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
    digits = IntegerDigits(Magnitude(v.integer()), spec.type);
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
      // Like 'g', but a number without an exponent keeps a digit behind the point.
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

// --- "...".format(...) ---

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
  // The replacement field whose first character is at `at`; moves behind its closing brace.
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

Value EscapeArgument(const Value& v) {
  return v.IsString() && !v.markup() ? Value::String(EscapeHtml(v.text()), true) : v;
}

}  // namespace

Value FormatPercent(const Value& format, const Value& values) {
  if (!format.markup()) return Value::String(PercentFormatter(format, values).Run());
  // Markup escapes what it takes in.
  Value escaped = EscapeArgument(values);
  if (values.Is(Type::kTuple)) {
    std::vector<Value> items;
    for (const Value& item : values.items()) items.push_back(EscapeArgument(item));
    escaped = Value::Tuple(std::move(items));
  }
  return Value::String(PercentFormatter(format, escaped).Run(), true);
}

Value FormatBraces(const Value& format, const Arguments& arguments) {
  if (!format.markup()) return Value::String(BraceFormatter(arguments).Run(format.text(), 1));
  Arguments escaped = arguments;
  for (Value& v : escaped.positional) v = EscapeArgument(v);
  for (auto& [name, v] : escaped.keywords) v = EscapeArgument(v);
  return Value::String(BraceFormatter(escaped).Run(format.text(), 1), true);
}

}  // namespace temper::jinja
