// LogSink: where what a run says goes (base/log.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

struct ProgressState;

enum class LogLevel : uint8_t { kInfo, kWarning, kError };

// Must outlive the scopes that name it and the threads that were started in them.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // `line` has neither its level nor its end, and may repeat what a file says byte by byte. Any thread.
  virtual void Line(LogLevel level, std::string_view line) = 0;
  // `logged`: worth a line of a log; other states only move a bar. One thread at a time.
  virtual void Progress(const ProgressState& state, bool logged) = 0;
  // What was in progress is over. The thread of Progress.
  virtual void EndProgress() {}
};

}  // namespace temper
