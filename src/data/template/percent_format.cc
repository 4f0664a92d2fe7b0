#include "data/template/percent_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "data/template/digits.h"
#include "data/template/text_search.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

int64_t TruncateToInteger(double v) {
  if (std::isnan(v)) Fail("cannot convert float NaN to integer");
  if (std::isinf(v)) Fail("cannot convert float infinity to integer");
  if (v >= 0x1p63 || v < -0x1p63) FailUnsupported("an integer does not fit 64 bits");
  return static_cast<int64_t>(v);
}

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
    // CPython accepts unused values that it treats as a mapping: dicts, lists, and jinja2's undefined.
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
        digits = IntegerDigits(n, type);
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
    if (std::abs(v.integer()) > std::numeric_limits<int32_t>::max()) Fail("a number in a format string is too large");
    return v.integer();
  }

  const std::string_view format_;
  const Value values_;
  std::string out_;
  size_t at_ = 0, next_ = 0;
};

}  // namespace

Value FormatPercent(const Value& format, const Value& values) {
  if (!format.markup()) return Value::String(PercentFormatter(format, values).Run());
  // Markup escapes its arguments.
  Value escaped = Escaped(values);
  if (values.Is(Type::kTuple)) {
    std::vector<Value> items;
    for (const Value& item : values.items()) items.push_back(Escaped(item));
    escaped = Value::Tuple(std::move(items));
  }
  return Value::String(PercentFormatter(format, escaped).Run(), true);
}

}  // namespace temper::jinja
