#include "runtime/trace.h"

#include <algorithm>

namespace temper {

Status Trace::WriteChrome(Env& env, const std::string& path) const {
  std::string text;
  OpenTrace(&text);
  using ToSeconds = std::chrono::duration<double>;
  // What ran in the background is recorded when it is waited for: kernels that began later may stand before it.
  auto zero = std::chrono::steady_clock::time_point::max();
  for (const Event& e : events_) zero = std::min(zero, e.begin);
  for (const Event& e : events_) {
    AppendTraceRow({.op = e.op,
                    .phase = e.phase,
                    .block = e.block,
                    .micro_batch = e.micro_batch,
                    .queue = e.queue,
                    .begin = {ToSeconds(e.begin - zero).count()},
                    .duration = {ToSeconds(e.end - e.begin).count()},
                    .bytes = e.bytes,
                    .flops = e.flops},
                   &text);
  }
  CloseTrace(dropped_, &text);
  return WriteTextFileAtomically(env, path, text);
}

}  // namespace temper
