// Trace: which instructions of a Program ran when. Events go into memory reserved beforehand (recording allocates
// nothing; when full, further events are counted and dropped) and are written in the Chrome trace format, which
// chrome://tracing and Perfetto read.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "program/trace_text.h"

namespace temper {

class Trace {
 public:
  struct Event {
    Op op;
    Phase phase;
    int block, micro_batch;
    std::chrono::steady_clock::time_point begin, end;
    Bytes bytes;  // operands read and written
    Flops flops;
    const char* queue = kComputeQueue;
  };

  explicit Trace(size_t capacity, std::string program = kTrainProgram) : program_(std::move(program)) {
    events_.reserve(capacity);
  }
  void Record(const Event& event) {
    if (events_.size() < events_.capacity()) {
      events_.push_back(event);
    } else {
      ++dropped_;
    }
  }
  const std::vector<Event>& events() const { return events_; }
  int64_t dropped() const { return dropped_; }

  const std::string& program() const { return program_; }

 private:
  std::string program_;  // the name of the one whose runs these are
  std::vector<Event> events_;
  int64_t dropped_ = 0;
};

// One "complete" event per instruction; times in microseconds from the first of all traces.
Status WriteChrome(Env& env, const std::string& path, std::span<const Trace> traces);

}  // namespace temper
