#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace temper::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition)
    : message_(std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition + ": ") {}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\nThis is a bug in temper.\n", message_.c_str());
  std::abort();
}

CheckFailure& CheckFailure::operator<<(std::string_view text) {
  message_ += text;
  return *this;
}
CheckFailure& CheckFailure::operator<<(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return *this << text;
}
CheckFailure& CheckFailure::Append(long long number) {
  return *this << std::to_string(number);
}

}  // namespace temper::internal
