// The rates of an op from times of a few instances: seconds = launch + flops / rate + bytes / bandwidth, none negative.
#pragma once

#include <span>

#include "compile/rates/device_rates.h"

namespace temper {

struct TimedSample {
  Cost cost;
  Seconds seconds;
};

// Least squares of the relative errors. REQUIRES: at least one sample; all took time.
OpRate FitRate(std::span<const TimedSample> samples);

// For ops that only move: the launch is the time of the smallest sample, bandwidth follows from each other one.
// REQUIRES: at least two samples, by ascending bytes.
OpRate FitBandwidth(std::span<const TimedSample> samples);

}  // namespace temper
