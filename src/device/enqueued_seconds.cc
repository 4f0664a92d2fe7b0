#include "device/enqueued_seconds.h"

#include <algorithm>
#include <vector>

namespace temper {

Result<Seconds> EnqueuedSeconds(Device& device, const std::function<Status()>& enqueue, const TimedSpans& timed) {
  Stream& stream = device.stream();
  TEMPER_RETURN_IF_ERROR(enqueue());
  TEMPER_RETURN_IF_ERROR(stream.Synchronize());
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Event> begin, device.MakeEvent());
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Event> end, device.MakeEvent());
  std::vector<double> seconds;
  for (int span = 0; span < timed.spans; ++span) {
    // From the end of a run: a launch takes some microseconds to arrive, and its end as long to be noticed. Beside a
    // kernel of 60 microseconds this would be a tenth of four runs' time.
    TEMPER_RETURN_IF_ERROR(enqueue());
    TEMPER_RETURN_IF_ERROR(stream.Mark(*begin));
    for (int run = 0; run < timed.runs; ++run) TEMPER_RETURN_IF_ERROR(enqueue());
    TEMPER_RETURN_IF_ERROR(stream.Mark(*end));
    TEMPER_RETURN_IF_ERROR(stream.Synchronize());
    TEMPER_ASSIGN_OR_RETURN(const Seconds taken, end->Since(*begin));
    seconds.push_back(taken.v / timed.runs);
  }
  const auto middle = seconds.begin() + timed.spans / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return Seconds{*middle};
}

}  // namespace temper
