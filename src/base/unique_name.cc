#include "base/unique_name.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace temper {

std::string UniqueName() {
  uint64_t bits = 0;
  ssize_t got = 0;
  do {  // so few bytes come whole, once the kernel has any
    got = getrandom(&bits, sizeof(bits), 0);
  } while (got < 0 && errno == EINTR);
  TEMPER_CHECK(got == sizeof(bits)) << "the kernel has no random bits";
  return fmt::format("{:016x}", bits);
}

}  // namespace temper
