#include "runtime/trace.h"

#include "program/trace_text.h"

namespace temper {

Status Trace::WriteChrome(Env& env, const std::string& path) const {
  std::string text;
  OpenTrace(&text);
  using ToSeconds = std::chrono::duration<double>;
  for (const Event& e : events_) {
    AppendTraceRow({.op = e.op,
                    .phase = e.phase,
                    .block = e.block,
                    .micro_batch = e.micro_batch,
                    .queue = e.background ? "communicate" : "compute",
                    .begin = {ToSeconds(e.begin - events_[0].begin).count()},
                    .duration = {ToSeconds(e.end - e.begin).count()},
                    .bytes = e.bytes,
                    .flops = e.flops},
                   &text);
  }
  CloseTrace(dropped_, &text);
  return WriteTextFileAtomically(env, path, text);
}

}  // namespace temper
