// What a run says while it works: lines for its user, and progress. Both go to the sink of the thread that says them:
// that of the innermost LogScope on this thread, else stderr (base/stderr_log.h). stdout belongs to results.
//
// Threads of a run have its sink because all are started by StartThread (base/thread.h) or belong to a team
// (base/team.h).
#pragma once

#include <string_view>

#include "base/log_sink.h"

namespace temper {

// While it lives, what this thread says goes to `sink`. Scopes of a thread end in the reverse order of their beginning.
class LogScope {
 public:
  explicit LogScope(LogSink& sink);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  LogSink* const before_;
};

LogSink& CurrentLog();

void LogInfo(std::string_view line);
void LogWarning(std::string_view line);
void LogError(std::string_view line);

}  // namespace temper
