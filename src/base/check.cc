#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace temper::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << ": ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\nThis is a bug in temper.\n", stream_.str().c_str());
  std::abort();
}

}  // namespace temper::internal
