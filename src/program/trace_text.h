// The Chrome trace format (chrome://tracing, Perfetto) as Temper writes it: the same for measured runs
// (runtime/trace.h) and for the planner's forecasts (plan/simulation.h), so that both can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "graph/graph.h"
#include "graph/op.h"

namespace temper {

inline constexpr char kComputeQueue[] = "compute";
inline constexpr char kTrainProgram[] = "train";  // ProgramName(kTrain)

// One execution of an instruction; times from the beginning of the trace.
struct TraceRow {
  Op op;
  Phase phase;
  int block = 0, micro_batch = 0;
  const char* queue = kComputeQueue;  // or, beside the kernels, one of kQueueOfLane (program/waits.h)
  Seconds begin, duration;
  Bytes bytes;
  Flops flops;
  std::string_view program = kTrainProgram;  // viewers show each Program as a process
};

// Text of a trace: Open, rows separated by what AppendTraceRow puts between them, Close.
void OpenTrace(std::string* text);
void AppendTraceRow(const TraceRow& row, std::string* text);
// `dropped`: events of steps that are not there; `beside`: of other Programs.
void CloseTrace(int64_t dropped, std::string* text, int64_t beside = 0);

}  // namespace temper
