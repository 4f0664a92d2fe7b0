#include "runtime/trace.h"

#include <algorithm>

namespace temper {

Status WriteChrome(Env& env, const std::string& path, std::span<const Trace> traces) {
  std::string text;
  OpenTrace(&text);
  using ToSeconds = std::chrono::duration<double>;
  // What ran in the background is recorded when it is waited for: kernels that began later may stand before it.
  auto zero = std::chrono::steady_clock::time_point::max();
  int64_t dropped = 0, dropped_beside = 0;
  for (const Trace& trace : traces) {
    for (const Trace::Event& e : trace.events()) zero = std::min(zero, e.begin);
    (trace.program() == kTrainProgram ? dropped : dropped_beside) += trace.dropped();
  }
  const auto append = [&](const Trace::Event& e, const std::string& program) {
    AppendTraceRow({.op = e.op,
                    .phase = e.phase,
                    .block = e.block,
                    .micro_batch = e.micro_batch,
                    .queue = e.queue,
                    .begin = {ToSeconds(e.begin - zero).count()},
                    .duration = {ToSeconds(e.end - e.begin).count()},
                    .bytes = e.bytes,
                    .flops = e.flops,
                    .program = program},
                   &text);
  };
  for (const Trace& trace : traces) {
    for (const Trace::Event& e : trace.events()) append(e, trace.program());
  }
  CloseTrace(dropped, &text, dropped_beside);
  return WriteTextFileAtomically(env, path, text);
}

}  // namespace temper
