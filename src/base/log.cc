#include "base/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace temper {
namespace {

void WriteLine(std::string_view prefix, std::string_view line) {
  std::string text;
  text.reserve(prefix.size() + line.size() + 1);
  text.append(prefix).append(line).push_back('\n');
  // A log line that cannot be written (closed pipe) must not end a run; there is nowhere to report it either.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void LogInfo(std::string_view line) {
  WriteLine("", line);
}
void LogWarning(std::string_view line) {
  WriteLine("warning: ", line);
}
void LogError(std::string_view line) {
  WriteLine("error: ", line);
}

bool StderrIsRich() {
  return isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

}  // namespace temper
