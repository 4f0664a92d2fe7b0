#include "runtime/trace.h"

#include <fmt/format.h>

namespace temper {

Status Trace::WriteChrome(Env& env, const std::string& path) const {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  using Microseconds = std::chrono::duration<double, std::micro>;
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    const double begin = Microseconds(e.begin - events_[0].begin).count();
    const double duration = Microseconds(e.end - e.begin).count();
    text += fmt::format(
        "{{\"name\": \"{}\", \"cat\": \"{}\", \"ph\": \"X\", \"pid\": 0, \"tid\": \"compute\", \"ts\": {:.3f}, "
        "\"dur\": {:.3f}, \"args\": {{\"block\": {}, \"micro_batch\": {}, \"bytes\": {}, \"gflops_per_second\": "
        "{:.1f}}}}}{}\n",
        ToString(e.op), ToString(e.phase), begin, duration, e.block, e.micro_batch, e.bytes.v,
        duration > 0 ? e.flops.v / duration * 1e-3 : 0.0, i + 1 < events_.size() ? "," : "");
  }
  text += fmt::format("], \"dropped_events\": {}}}\n", dropped_);
  return WriteTextFileAtomically(env, path, text);
}

}  // namespace temper
