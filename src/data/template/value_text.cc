// str() and repr() of values, as CPython writes them.
#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "data/template/unicode.h"
#include "data/template/value.h"

namespace temper::jinja {
namespace {

void AppendRepr(std::string& out, const Value& v);

void AppendJoinedReprs(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) AppendText(out, ", ");
    AppendRepr(out, items[i]);
  }
}

void AppendRepr(std::string& out, const Value& v) {
  Budget::Step();
  switch (v.type()) {
    case Type::kUndefined:
      return AppendText(out, "Undefined");
    case Type::kNone:
      return AppendText(out, "None");
    case Type::kBool:
      return AppendText(out, v.boolean() ? "True" : "False");
    case Type::kInt:
      return AppendText(out, std::to_string(v.integer()));
    case Type::kFloat:
      return AppendText(out, FloatRepr(v.number()));
    case Type::kString: {
      const std::string quoted = QuotedRepr(v.text());
      return AppendText(out, v.markup() ? "Markup(" + quoted + ")" : quoted);
    }
    case Type::kList:
      AppendText(out, "[");
      AppendJoinedReprs(out, v.items());
      return AppendText(out, "]");
    case Type::kTuple:
      AppendText(out, "(");
      AppendJoinedReprs(out, v.items());
      return AppendText(out, v.items().size() == 1 ? ",)" : ")");
    case Type::kDict: {
      AppendText(out, "{");
      bool first = true;
      for (const auto& [key, value] : v.dict().entries) {
        if (!first) AppendText(out, ", ");
        first = false;
        AppendRepr(out, key);
        AppendText(out, ": ");
        AppendRepr(out, value);
      }
      return AppendText(out, "}");
    }
    case Type::kDictView: {
      AppendText(out, std::string(TypeName(v)) + "([");
      AppendJoinedReprs(out, *Elements(v));
      return AppendText(out, "])");
    }
    case Type::kRange: {
      const RangeObject& r = v.range();
      return AppendText(out, r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                                         : fmt::format("range({}, {}, {})", r.start, r.stop, r.step));
    }
    case Type::kIterator:
      // Python prints an address here, which is useless in a prompt.
      Fail("a generator (the result of a filter such as map or select) is printed; add '| list' or '| join'");
    case Type::kNative:
      return AppendText(out, v.native().Repr());
  }
}

}  // namespace

std::string Repr(const Value& v) {
  std::string out;
  AppendRepr(out, v);
  return out;
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

std::string Str(const Value& v) {
  if (v.IsString()) return v.text();
  if (v.IsUndefined()) return "";
  return Repr(v);
}

// The shortest digits that read back as the same double, in Python's layout: an exponent below 1e-4 and from 1e16.
std::string FloatRepr(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* exponent_text = scientific.data() + e + 1 + (scientific[e + 1] == '+');
  std::from_chars(exponent_text, end, exponent);
  std::string digits;
  for (char c : scientific.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = v < 0 || (v == 0 && std::signbit(v)) ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (n > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

std::string QuotedRepr(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = NextCodePoint(text, at);
    switch (c) {
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      default:
        break;
    }
    if (c == static_cast<char32_t>(quote)) {
      out += {'\\', quote};
    } else if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else if (IsPrintable(c)) {
      out += text.substr(start, at - start);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return out + quote;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value Escaped(const Value& v) {
  return v.IsString() && !v.markup() ? Value::String(EscapeHtml(v.text()), true) : v;
}

}  // namespace temper::jinja
