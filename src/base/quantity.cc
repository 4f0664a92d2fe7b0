#include "base/quantity.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace temper {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 13> kPrefixes = {{{"", 1},
                                                                            {"n", 1e-9},
                                                                            {"u", 1e-6},
                                                                            {"m", 1e-3},
                                                                            {"k", 1e3},
                                                                            {"M", 1e6},
                                                                            {"G", 1e9},
                                                                            {"T", 1e12},
                                                                            {"P", 1e15},
                                                                            {"Ki", 0x1p10},
                                                                            {"Mi", 0x1p20},
                                                                            {"Gi", 0x1p30},
                                                                            {"Ti", 0x1p40}}};

}  // namespace

Result<double> ParseQuantity(std::string_view text, std::string_view unit) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view rest = text.substr(static_cast<size_t>(parsed.ptr - text.data()));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto bad = [&] {
    return InvalidArgument(
        fmt::format("'{}' is not a quantity in {}: write a number and a unit, such as '1.5 G{}'", text, unit, unit));
  };
  if (parsed.ec != std::errc() || !std::isfinite(number) || number < 0 || !rest.ends_with(unit)) return bad();
  rest.remove_suffix(unit.size());
  for (const auto& [prefix, factor] : kPrefixes) {
    if (rest == prefix) return number * factor;
  }
  return bad();
}

std::string PrintQuantity(double number, std::string_view unit) {
  return fmt::format("{:.5g} {}", number, unit);
}

std::string Grouped(double number) {
  if (!std::isfinite(number)) return fmt::format("{}", number);
  if (std::abs(number) < 99.95) return fmt::format("{:.1f}", number);
  std::string digits = fmt::format("{:.0f}", number);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string Counted(int64_t n, std::string_view noun, std::string_view plural) {
  if (n != 1 && !plural.empty()) return fmt::format("{} {}", n, plural);
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace temper
