#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/utf8.h"

namespace temper {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";  // to the start of the line, and clear it

std::atomic<bool> unfinished_line = false;
std::atomic<int> log_rank = 0;
std::string error_prefix = "error: ";

void WriteLine(std::string_view prefix, std::string_view line) {
  std::string text;
  text.reserve(prefix.size() + line.size() + 5);
  if (unfinished_line.exchange(false)) text += kClearLine;
  text.append(prefix).append(utf8::Harmless(line)).push_back('\n');  // a message may repeat what a file says
  // A log line that cannot be written (closed pipe) must not end a run; there is nowhere to report it either.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void SetLogRank(int rank, std::string_view name) {
  log_rank = rank;
  if (!name.empty()) error_prefix.append(name).append(": ");
}

void LogInfo(std::string_view line) {
  if (log_rank == 0) WriteLine("", line);
}
void LogWarning(std::string_view line) {
  if (log_rank == 0) WriteLine("warning: ", line);
}
void LogError(std::string_view line) {
  WriteLine(error_prefix, line);
}

void LogInSignalHandler(std::string_view line) {
  static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
  if (log_rank != 0) return;
  char text[256];
  size_t size = 0;
  const auto append = [&](std::string_view piece) {
    piece = piece.substr(0, sizeof text - size);
    size += piece.copy(text + size, piece.size());
  };
  if (unfinished_line.exchange(false)) append(kClearLine);
  append(line);
  append("\n");
  const int interrupted = errno;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size);
  errno = interrupted;
}

void SetUnfinishedLine(bool stands) {
  unfinished_line = stands;
}
bool UnfinishedLine() {
  return unfinished_line;
}

bool StderrIsRich() {
  return isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

}  // namespace temper
