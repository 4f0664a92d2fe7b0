#include "program/trace_text.h"

#include <fmt/core.h>

namespace temper {

void OpenTrace(std::string* text) {
  *text += "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
}

void AppendTraceRow(const TraceRow& e, std::string* text) {
  if (text->ends_with('}')) *text += ",\n";
  *text += fmt::format(
      "{{\"name\": \"{}\", \"cat\": \"{}\", \"ph\": \"X\", \"pid\": \"{}\", \"tid\": \"{}\", \"ts\": {:.3f}, \"dur\": "
      "{:.3f}, "
      "\"args\": {{\"block\": {}, \"micro_batch\": {}, \"bytes\": {}, \"gflops_per_second\": {:.1f}}}}}",
      ToString(e.op), ToString(e.phase), e.program, e.queue, e.begin.v * 1e6, e.duration.v * 1e6, e.block,
      e.micro_batch, e.bytes.v, e.duration.v > 0 ? e.flops.v / e.duration.v * 1e-9 : 0.0);
}

void CloseTrace(int64_t dropped, std::string* text, int64_t beside) {
  if (text->ends_with('}')) *text += '\n';
  *text += fmt::format("], \"dropped_events\": {}, \"dropped_events_beside_steps\": {}}}\n", dropped, beside);
}

}  // namespace temper
