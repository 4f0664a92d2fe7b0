// ObserverLog: what a run says and does, told to an Observer: one call at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "api/temper.h"
#include "base/log.h"
#include "train/loop.h"

namespace temper {

// Any thread.
class ObserverLog final : public LogSink, public LoopEvents {
 public:
  // nullptr: nobody is told. `observer` must outlive this.
  explicit ObserverLog(Observer* observer) : observer_(observer) {}

  void Line(LogLevel level, std::string_view line) override;
  void Progress(const ProgressState& state, bool logged) override;
  void Stepped(const StepEvent& step) override;
  void Evaluated(const EvaluationRow& row) override;
  void Evaluated(const EvaluationMetrics& metrics);
  void Saved(const std::string& folder, int64_t step);

 private:
  template <class F>
  void Tell(F call);

  Observer* const observer_;
  std::recursive_mutex mutex_;  // an observer may do what makes it be told more
};

}  // namespace temper
