#include "data/template/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/c_locale.h"
#include "base/utf8.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

bool IsAsciiDigit(char c) {
  return c >= '0' && c <= '9';
}

// \r\n and \r become \n, and one newline at the very end is removed, as jinja2 does by default.
std::string Normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalize(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) Root();
    if (!tokens_.empty()) line_ = tokens_.back().line;  // an unexpected end is reported at the start of the last piece
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void FailHere(std::string message) const {
    throw TemplateError(StatusCode::kInvalidArgument, std::move(message), line_);
  }

  bool StartsWith(std::string_view piece, size_t at) const {
    return std::string_view(source_).substr(std::min(at, source_.size())).starts_with(piece);
  }
  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!IsSpace(NextCodePoint(source_, next))) break;
      at = next;
    }
    return at;
  }

  void Add(TokenType type, std::string text, Value number = {}) {
    tokens_.push_back({type, line_, std::move(text), std::move(number)});
  }
  // Moves to `end`, counting the lines passed.
  void MoveTo(size_t end) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<int64_t>(at_), source_.begin() + static_cast<int64_t>(end), '\n'));
    line_starting_ = end > 0 && source_[end - 1] == '\n';
    at_ = end;
  }

  // Adds the text up to a tag at `tag`, whose sign ('-', '+' or
  // 0) and kind decide how much white space before it is dropped.
  void AddText(size_t tag, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      text = Strip(text, nullptr, false, true);
    } else if (sign == 0 && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == text.npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) && start < text.size() &&
          Strip(text.substr(start), nullptr, true, false).empty()) {
        text = text.substr(0, start);
      }
    }
    if (!text.empty()) Add(TokenType::kData, std::string(text));
  }

  char SignAt(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : 0;
  }

  // The end of a closing tag `close` at `at` ("%}", "-%}", "+%}"), or 0. '-' also takes white space; without a sign,
  // one newline if `trim` (trim_blocks); '+' is allowed only if `trim`.
  size_t CloseAt(size_t at, std::string_view close, bool trim) const {
    if (at < source_.size() && source_[at] == '-' && StartsWith(close, at + 1)) return SkipSpace(at + 1 + close.size());
    if (trim && at < source_.size() && source_[at] == '+' && StartsWith(close, at + 1)) return at + 1 + close.size();
    if (!StartsWith(close, at)) return 0;
    at += close.size();
    return trim && at < source_.size() && source_[at] == '\n' ? at + 1 : at;
  }

  // The end of "{%- raw -%}" at `at`, or 0 if it is not there.
  size_t RawBeginAt(size_t at) const {
    size_t p = at + 2 + (SignAt(at + 2) ? 1 : 0);
    p = SkipSpace(p);
    if (!StartsWith("raw", p)) return 0;
    return CloseAt(SkipSpace(p + 3), "%}", /*trim=*/false);
  }

  void Root() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 >= source_.size()) {
        AddRest();
        return;
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    const size_t raw = kind == '%' ? RawBeginAt(tag) : 0;
    AddText(tag, sign, kind == '{');
    if (raw) {
      MoveTo(raw);
      Raw();
      return;
    }
    MoveTo(tag);
    if (kind == '#') {
      Comment(tag + 2 + (sign ? 1 : 0));
      return;
    }
    Add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
    MoveTo(tag + 2 + (sign ? 1 : 0));
    Tag(kind == '{');
  }

  void AddRest() {
    Add(TokenType::kData, source_.substr(at_));
    MoveTo(source_.size());
  }

  void Comment(size_t from) {
    for (size_t p = from; (p = source_.find("#}", p)) != source_.npos; ++p) {
      const bool sign = p > from && SignAt(p - 1);
      MoveTo(CloseAt(sign ? p - 1 : p, "#}", /*trim=*/true));
      return;
    }
    FailHere("Missing end of comment tag");
  }

  void Raw() {
    for (size_t p = at_; (p = source_.find("{%", p)) != source_.npos; ++p) {
      const char sign = SignAt(p + 2);
      const size_t word = SkipSpace(p + 2 + (sign ? 1 : 0));
      if (!StartsWith("endraw", word)) continue;
      const size_t end = CloseAt(SkipSpace(word + 6), "%}", /*trim=*/true);
      if (!end) continue;
      AddText(p, sign, false);
      MoveTo(end);
      return;
    }
    FailHere("Missing end of raw directive");
  }

  void Tag(bool is_variable) {
    std::string open;  // closing brackets still expected
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const size_t end = CloseAt(at_, is_variable ? "}}" : "%}", !is_variable)) {
          Add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
          MoveTo(end);
          return;
        }
      }
      if (const size_t end = SkipSpace(at_); end != at_) {
        MoveTo(end);
        continue;
      }
      if (Number() || Name() || StringLiteral()) continue;
      Operator(open);
    }
  }

  // The end of the digits, with single underscores between them, that begin at `at`.
  template <class IsDigitFn>
  size_t Digits(size_t at, IsDigitFn is_digit) const {
    if (at >= source_.size() || !is_digit(source_[at])) return at;
    ++at;
    while (at < source_.size()) {
      if (is_digit(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  std::string WithoutUnderscores(size_t from, size_t to) const {
    std::string out = source_.substr(from, to - from);
    out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
    return out;
  }

  bool Number() {
    if (!IsAsciiDigit(source_[at_])) return false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && Float()) return true;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      const int base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
      if (base) {
        const auto is_digit = [base](char c) {
          const int v = IsAsciiDigit(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
          return v < base;
        };
        const size_t start = at_ + 2 + (at_ + 2 < source_.size() && source_[at_ + 2] == '_' ? 1 : 0);
        const size_t end = Digits(start, is_digit);
        if (end != start) return AddInteger(start, end, base);
      }
    }
    // A leading zero is a number of its own: "00" is zero, "07" is not one number.
    const bool zero = source_[at_] == '0';
    return AddInteger(at_, Digits(at_, [zero](char c) { return zero ? c == '0' : IsAsciiDigit(c); }), 10);
  }

  bool Float() {
    const size_t whole = Digits(at_, IsAsciiDigit);
    size_t end = whole;
    if (end < source_.size() && source_[end] == '.') {
      const size_t fraction = Digits(end + 1, IsAsciiDigit);
      if (fraction != end + 1) end = fraction;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t start = end + 1 + (SignAt(end + 1) ? 1 : 0);
      const size_t exponent = Digits(start, IsAsciiDigit);
      if (exponent != start) end = exponent;
    }
    if (end == whole) return false;
    const std::string text = WithoutUnderscores(at_, end);
    Add(TokenType::kNumber, text, Value::Float(strtod_l(text.c_str(), nullptr, CLocale())));
    MoveTo(end);
    return true;
  }

  bool AddInteger(size_t from, size_t to, int base) {
    const std::string text = WithoutUnderscores(from, to);
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc()) {
      throw TemplateError(StatusCode::kUnsupported, fmt::format("the integer {} does not fit 64 bits", text), line_);
    }
    Add(TokenType::kNumber, text, Value::Int(value));
    MoveTo(to);
    return true;
  }

  bool Name() {
    const auto is_name = [](char32_t c) { return c == '_' || IsAlnum(c); };
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_name(NextCodePoint(source_, next))) break;
      end = next;
    }
    if (end == at_) return false;
    Add(TokenType::kName, source_.substr(at_, end - at_));
    MoveTo(end);
    return true;
  }

  bool StringLiteral() {
    const char quote = source_[at_];
    if (quote != '"' && quote != '\'') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) FailHere(fmt::format("a string that starts with {} does not end", quote));
    Add(TokenType::kString, Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    MoveTo(end + 1);
    return true;
  }

  // The code point of `count` hex digits at `at`, which moves past them.
  char32_t HexEscape(std::string_view text, size_t& at, int count) const {
    uint32_t value = 0;
    const std::string_view digits = text.substr(std::min(at, text.size()), static_cast<size_t>(count));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < static_cast<size_t>(count) || error != std::errc() || end != digits.data() + count) {
      FailHere("a truncated \\x, \\u or \\U escape in a string");
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      FailHere(fmt::format("the escape U+{:04X} in a string is not a character", value));
    }
    at += static_cast<size_t>(count);
    return value;
  }

  // Python's "unicode-escape": an unknown escape stays as it is, backslash included.
  std::string Unescape(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at++];
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = text[at++];  // the scan of the literal made sure that there is one
      switch (escape) {
        case '\n':
          break;
        case '\\':
        case '\'':
        case '"':
          out += escape;
          break;
        case 'a':
          out += '\a';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'n':
          out += '\n';
          break;
        case 'r':
          out += '\r';
          break;
        case 't':
          out += '\t';
          break;
        case 'v':
          out += '\v';
          break;
        case 'x':
          utf8::Append(out, HexEscape(text, at, 2));
          break;
        case 'u':
          utf8::Append(out, HexEscape(text, at, 4));
          break;
        case 'U':
          utf8::Append(out, HexEscape(text, at, 8));
          break;
        case 'N':
          FailHere("\\N{...} escapes are not supported; write the character itself");
        default:
          if (escape >= '0' && escape <= '7') {
            uint32_t value = static_cast<uint32_t>(escape - '0');
            for (int i = 0; i < 2 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i) {
              value = value * 8 + static_cast<uint32_t>(text[at++] - '0');
            }
            utf8::Append(out, value);
          } else if (static_cast<unsigned char>(escape) < 0x80) {
            out += {'\\', escape};
          } else {
            // jinja2 first turns the character into an escape of its own, so that the backslash before it is doubled.
            --at;
            const auto point = static_cast<uint32_t>(NextCodePoint(text, at));
            out += point < 0x100     ? fmt::format("\\x{:02x}", point)
                   : point < 0x10000 ? fmt::format("\\u{:04x}", point)
                                     : fmt::format("\\U{:08x}", point);
          }
      }
    }
    return out;
  }

  void Operator(std::string& open) {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t length = 1;
    for (std::string_view op : kDouble) {
      if (StartsWith(op, at_)) length = 2;
    }
    const char c = source_[at_];
    if (length == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      size_t end = at_;
      NextCodePoint(source_, end);
      FailHere(fmt::format("unexpected char '{}'", source_.substr(at_, end - at_)));
    }
    if (length == 1 && (c == '(' || c == '[' || c == '{')) open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (length == 1 && (c == ')' || c == ']' || c == '}')) {
      if (open.empty()) FailHere(fmt::format("unexpected '{}'", c));
      if (open.back() != c) FailHere(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    Add(TokenType::kOperator, source_.substr(at_, length));
    MoveTo(at_ + length);
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "string";
    case TokenType::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace temper::jinja
