// How long a device takes for work that is enqueued, by the device's own clock.
#pragma once

#include <functional>

#include "device/device.h"

namespace temper {

struct TimedSpans {
  int spans = 5, runs = 4;  // the median of so many spans, each of so many runs
};

// Of one run of the work that `enqueue` puts on the device's stream, after a first run that is not counted.
Result<Seconds> EnqueuedSeconds(Device& device, const std::function<Status()>& enqueue, const TimedSpans& timed = {});

}  // namespace temper
