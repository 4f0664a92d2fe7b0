// TEMPER_CHECK(condition) << "what, with shapes": a bug in Temper, never an error of the user's.
// Always on. Prints file, line, condition and message, then aborts.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace temper::internal {

// Not a std::ostream: almost every file includes this one, and <sstream> costs each a quarter of a second to compile.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();

  CheckFailure& operator<<(std::string_view text);
  CheckFailure& operator<<(double number);
  CheckFailure& operator<<(std::integral auto number) { return Append(static_cast<long long>(number)); }

 private:
  CheckFailure& Append(long long number);

  std::string message_;
};

// Makes a void of what the condition's other outcome, (void)0, stands beside.
struct Voidify {
  void operator&(const CheckFailure&) {}
};

}  // namespace temper::internal

#define TEMPER_CHECK(condition) \
  (condition) ? (void)0         \
              : ::temper::internal::Voidify() & ::temper::internal::CheckFailure(__FILE__, __LINE__, #condition)
