#include "data/template/digits.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "base/c_locale.h"
#include "data/template/budget.h"

namespace temper::jinja {

int64_t ReadNumber(std::string_view text, size_t& at) {
  if (at >= text.size() || text[at] < '0' || text[at] > '9') return -1;
  int64_t n = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    n = n * 10 + (text[at] - '0');
    if (n > std::numeric_limits<int32_t>::max()) Fail("a number in a format string is too large");
  }
  return n;
}

namespace {

// The locale of this thread while it lives: snprintf takes none.
class ThreadLocale {
 public:
  explicit ThreadLocale(locale_t locale) : before_(uselocale(locale)) {}
  ~ThreadLocale() { uselocale(before_); }
  ThreadLocale(const ThreadLocale&) = delete;
  ThreadLocale& operator=(const ThreadLocale&) = delete;

 private:
  const locale_t before_;
};

}  // namespace

std::string FloatDigits(double v, char type, int64_t precision, bool alternate) {
  v = std::fabs(v);
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(v)) return upper ? "NAN" : "nan";
  if (std::isinf(v)) return upper ? "INF" : "inf";
  if (precision > kMaxPrecision) Fail("the precision of a format is too large");
  Budget::Charge(2 * precision);
  const std::string c_format = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const ThreadLocale scope(CLocale());
  const int size = std::snprintf(nullptr, 0, c_format.c_str(), static_cast<int>(precision), v);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), c_format.c_str(), static_cast<int>(precision), v);
  out.pop_back();
  return out;
}

std::string IntegerDigits(int64_t integer, char type) {
  const uint64_t v = integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
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

}  // namespace temper::jinja
