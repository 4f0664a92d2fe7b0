// Filters whose operand is text or a number.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/c_locale.h"
#include "data/template/access.h"
#include "data/template/filter_tables.h"
#include "data/template/interpreter.h"
#include "data/template/parameters.h"
#include "data/template/percent_format.h"
#include "data/template/text_search.h"
#include "data/template/unicode.h"
#include "data/template/value_json.h"

namespace temper::jinja {
namespace {

// soft_str: a string keeps its text and safe mark; other values give str().
Value SoftText(const Value& v) {
  return v.IsString() ? v : Value::String(Str(v));
}
// For filters that call str's own methods.
const std::string& RequireText(const Value& v, const char* filter) {
  RequireDefined(v);
  if (!v.IsString()) Fail(fmt::format("the filter {} needs a string, not {}", filter, TypeName(v)));
  return v.text();
}

template <std::string (*transform)(std::string_view)>
Value TransformFilter(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  const Value text = SoftText(v);
  Budget::Charge(4 * static_cast<int64_t>(text.text().size()));
  return Value::String(transform(text.text()), text.markup());
}

// Unlike str.title: words begin after white space and -({[< only.
std::string JinjaTitle(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    NextCodePoint(word, first);
    out += Upper(std::string_view(word).substr(0, first)) + Lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = NextCodePoint(text, at);
    const bool separates =
        IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    if (separates) {
      flush();
      out += text.substr(start, at - start);
    } else {
      word += text.substr(start, at - start);
    }
  }
  flush();
  return out;
}

Value Trim(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("trim", arguments, {"chars"});
  const Value text = SoftText(v);
  const std::string_view chars = p.HasNotNone(0) ? std::string_view(p.Text(0)) : std::string_view();
  if (chars.size() > 256) Budget::Step(static_cast<int64_t>(text.text().size() * (chars.size() / 64)));
  return Value::String(std::string(Strip(text.text(), p.HasNotNone(0) ? &chars : nullptr, true, true)), text.markup());
}

Value ReplaceFilter(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return Value::String(ReplaceText(Str(v), Str(p[0]), Str(p[1]), p.HasNotNone(2) ? p.Int(2, -1) : -1));
}

Value Escape(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  if (v.IsString() && v.markup()) return v;
  return Value::String(EscapeHtml(Str(v)), true);
}
Value Safe(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  return Value::String(Str(v), true);
}
Value StringFilter(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  return SoftText(v);
}

Value Indent(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  std::string indention;
  if (p.Has(0) && p[0].IsString()) {
    indention = p[0].text();
  } else {
    AppendRepeated(indention, " ", p.Int(0, 4));
  }
  // jinja2 splits the text with a newline added, so that one at its end is kept as an empty last line.
  const std::string text = RequireText(v, "indent") + "\n";
  const auto lines = SplitLines(text, false);
  const bool first = p.Flag(1, false), blank = p.Flag(2, false);
  std::string out = first ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      AppendText(out, "\n");
      if (blank || !lines[i].empty()) AppendText(out, indention);
    }
    AppendText(out, lines[i]);
  }
  return Value::String(std::move(out), v.markup());
}

Value FormatFilter(Interpreter&, const Value& v, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    Fail("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.keywords.empty()) return FormatPercent(SoftText(v), Value::Tuple(std::move(arguments.positional)));
  DictBuilder dict;
  for (auto& [name, value] : arguments.keywords) dict.Set(name, std::move(value));
  return FormatPercent(SoftText(v), dict.Build());
}

// Python's syntax of a number in text: white space around it, single underscores between digits.
std::optional<std::string> PlainDigits(std::string_view text) {
  const std::string_view stripped = Strip(text, nullptr, true, true);
  std::string out;
  for (size_t i = 0; i < stripped.size(); ++i) {
    if (stripped[i] != '_') {
      out += stripped[i];
      continue;
    }
    const auto is_alnum = [&](size_t k) {
      return k < stripped.size() && IsAlnum(static_cast<unsigned char>(stripped[k]));
    };
    if (i == 0 || !is_alnum(i - 1) || !is_alnum(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<double> ReadFloat(std::string_view text) {
  const auto digits = PlainDigits(text);
  if (!digits || digits->empty()) return std::nullopt;
  const char* begin = digits->c_str();
  const char* end = begin + digits->size();
  if (*begin == '+' && begin[1] != '-' && begin[1] != '+') ++begin;
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value, std::chars_format::general);
  if (stop != end) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return strtod_l(begin, nullptr, CLocale());  // infinity or zero, as Python
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> ReadInteger(std::string_view text, int64_t base) {
  const auto plain = PlainDigits(text);
  if (!plain || base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string_view digits = *plain;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int64_t prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed && (base == 0 || base == prefixed)) {
      base = prefixed;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  uint64_t value = 0;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (digits.empty() || stop != digits.data() + digits.size()) return std::nullopt;
  if (error != std::errc() || value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    FailUnsupported("an integer does not fit 64 bits");
  }
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

Value IntFilter(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  const Value fallback = p.Or(0, Value::Int(0));
  RequireDefined(v);
  if (v.IsInteger()) return Value::Int(v.integer());
  std::optional<double> number;
  if (v.IsString()) {
    if (const auto whole = ReadInteger(v.text(), p.Int(1, 10))) return Value::Int(*whole);
    number = ReadFloat(v.text());
  } else if (v.Is(Type::kFloat)) {
    number = v.number();
    // CPython raises OverflowError here, which jinja2 does not catch if the operand is a number, not text.
    if (std::isinf(*number)) Fail("cannot convert float infinity to integer");
  }
  if (!number || !std::isfinite(*number)) return fallback;
  if (*number >= 0x1p63 || *number < -0x1p63) FailUnsupported("an integer does not fit 64 bits");
  return Value::Int(static_cast<int64_t>(*number));
}

Value FloatFilter(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("float", arguments, {"default"});
  RequireDefined(v);
  if (v.IsNumber()) return Value::Float(v.number());
  if (v.IsString()) {
    if (const auto number = ReadFloat(v.text())) return Value::Float(*number);
  }
  return p.Or(0, Value::Float(0));
}

Value Abs(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  RequireDefined(v);
  if (v.Is(Type::kFloat)) return Value::Float(std::fabs(v.number()));
  if (!v.IsInteger()) Fail(fmt::format("bad operand type for abs(): '{}'", TypeName(v)));
  if (v.integer() == std::numeric_limits<int64_t>::min()) FailUnsupported("an integer does not fit 64 bits");
  return Value::Int(std::abs(v.integer()));
}

// Correctly rounded, half to even of the exact binary value. CPython does so by printing and reading back.
double RoundFloat(double v, int64_t digits) {
  if (!std::isfinite(v) || digits > 323) return v;
  if (digits < -308) return std::copysign(0.0, v);
  if (digits >= 0) return strtod_l(fmt::format("{:.{}f}", v, digits).c_str(), nullptr, CLocale());
  const std::string scientific = fmt::format("{:e}", v);
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(v / unit) * unit;
}

Value Round(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const int64_t digits = p.Int(0, 0);
  const std::string method = p.Has(1) ? p.Text(1) : "common";
  RequireDefined(v);
  if (!v.IsNumber()) Fail(fmt::format("type {} doesn't define __round__ method", TypeName(v)));
  if (method == "common") {
    if (v.Is(Type::kFloat)) return Value::Float(RoundFloat(v.number(), digits));
    if (digits >= 0) return Value::Int(v.integer());
    if (digits < -18) return Value::Int(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -digits; ++i) unit *= 10;
    int64_t rest = v.integer() % unit;
    if (rest < 0) rest += unit;
    const int64_t down = v.integer() - rest;
    const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
    return Value::Int(up ? down + unit : down);
  }
  if (method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  if (digits > 300 || digits < -300) Fail("round(): the precision is too large");
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = v.number() * unit;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value ToJsonFilter(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.Flag(0, false);
  style.sort_keys = p.Flag(3, false);
  if (p.HasNotNone(1)) {
    style.indent.emplace();
    if (p[1].IsString()) {
      style.indent = p[1].text();
    } else {
      AppendRepeated(*style.indent, " ", p.Int(1, 0));
    }
  }
  if (p.HasNotNone(2)) {
    const Elements separators(p[2]);
    if (separators->size() != 2 || !(*separators)[0].IsString() || !(*separators)[1].IsString()) {
      Fail("tojson: separators must be two strings");
    }
    style.item_separator = (*separators)[0].text();
    style.key_separator = (*separators)[1].text();
  }
  return Value::String(ToJson(v, style));
}

}  // namespace

const FilterTable& TextFilters() {
  static const FilterTable kFilters = {
      {"abs", Abs},
      {"capitalize", TransformFilter<Capitalize>},
      {"e", Escape},
      {"escape", Escape},
      {"float", FloatFilter},
      {"format", FormatFilter},
      {"indent", Indent},
      {"int", IntFilter},
      {"lower", TransformFilter<Lower>},
      {"replace", ReplaceFilter},
      {"round", Round},
      {"safe", Safe},
      {"string", StringFilter},
      {"title", TransformFilter<JinjaTitle>},
      {"tojson", ToJsonFilter},
      {"trim", Trim},
      {"upper", TransformFilter<Upper>},
  };
  return kFilters;
}

}  // namespace temper::jinja
