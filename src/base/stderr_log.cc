#include "base/stderr_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/utf8.h"

namespace temper {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";  // to the start of the line, and clear it
constexpr std::string_view kRed = "\x1b[1;31m", kYellow = "\x1b[33m", kPlain = "\x1b[0m";
constexpr auto kRedrawEvery = std::chrono::milliseconds(100);

void WriteToStderr(std::string_view text) {
  // There is nowhere to report a failure.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void StderrLog::SetRank(int rank, std::string_view name) {
  rank_ = rank;
  if (!name.empty()) error_prefix_.append(name).append(": ");
}

void StderrLog::Line(LogLevel level, std::string_view line) {
  if (rank_ != 0 && level != LogLevel::kError) return;
  const std::string_view prefix = level == LogLevel::kError     ? std::string_view(error_prefix_)
                                  : level == LogLevel::kWarning ? "warning: "
                                                                : "";
  std::string text;
  text.reserve(prefix.size() + line.size() + 20);
  if (unfinished_.exchange(false)) text += kClearLine;
  if (!prefix.empty() && rich_.value_or(StderrIsRich())) {
    text.append(level == LogLevel::kError ? kRed : kYellow).append(prefix).append(kPlain);
  } else {
    text.append(prefix);
  }
  text.append(utf8::Harmless(line)).push_back('\n');
  WriteToStderr(text);
  if (shows_.load() == std::this_thread::get_id() && drawn_) Draw();
}

void StderrLog::LineInSignalHandler(std::string_view line) {
  static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
  if (rank_ != 0) return;
  char text[256];
  size_t size = 0;
  const auto append = [&](std::string_view piece) {
    piece = piece.substr(0, sizeof text - size);
    size += piece.copy(text + size, piece.size());
  };
  if (unfinished_.exchange(false)) append(kClearLine);
  append(line);
  append("\n");
  const int interrupted = errno;
  WriteToStderr({text, size});
  errno = interrupted;
}

void StderrLog::Progress(const ProgressState& state, bool logged) {
  last_ = state;
  if (!rich_.value_or(StderrIsRich())) {
    if (logged) WriteToStderr(ProgressLine(state) + "\n");
    return;
  }
  shows_ = std::this_thread::get_id();
  pending_ = true;
  if (!drawn_ || std::chrono::steady_clock::now() - last_draw_ >= kRedrawEvery) Draw();
}

void StderrLog::EndProgress() {
  if (pending_ || (drawn_ && !unfinished_)) Draw();
  if (drawn_) WriteToStderr("\n");
  unfinished_ = drawn_ = false;
  shows_ = std::thread::id();
}

void StderrLog::Draw() {
  // First, so that a concurrent line of another thread clears too much rather than too little.
  unfinished_ = true;
  // One column less than available: some terminals wrap a full line, and then "\r" returns only to its second half.
  WriteToStderr(std::string(kClearLine) + ProgressBar(last_, TerminalWidth() - 1, unicode_.value_or(LocaleIsUtf8())));
  drawn_ = true;
  pending_ = false;
  last_draw_ = std::chrono::steady_clock::now();
}

StderrLog& ProcessLog() {
  static StderrLog& log = *new StderrLog();
  return log;
}

bool StderrIsRich() {
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return !dumb && isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

}  // namespace temper
