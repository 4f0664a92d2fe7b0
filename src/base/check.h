// TEMPER_CHECK(condition) << "what, with shapes": for bugs in Temper, never for a user's errors.
// Always on. Prints file, line, condition and message, then aborts.
#pragma once

#include <sstream>

namespace temper::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostringstream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace temper::internal

#define TEMPER_CHECK(condition) \
  (condition)                   \
      ? (void)0                 \
      : ::temper::internal::Voidify() & ::temper::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
