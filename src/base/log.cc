#include "base/log.h"

#include <utility>

#include "base/stderr_log.h"

namespace temper {
namespace {

thread_local LogSink* sink_of_thread = nullptr;

}  // namespace

LogScope::LogScope(LogSink& sink) : before_(std::exchange(sink_of_thread, &sink)) {}
LogScope::~LogScope() {
  sink_of_thread = before_;
}

LogSink& CurrentLog() {
  return sink_of_thread != nullptr ? *sink_of_thread : ProcessLog();
}

void LogInfo(std::string_view line) {
  CurrentLog().Line(LogLevel::kInfo, line);
}
void LogWarning(std::string_view line) {
  CurrentLog().Line(LogLevel::kWarning, line);
}
void LogError(std::string_view line) {
  CurrentLog().Line(LogLevel::kError, line);
}

}  // namespace temper
