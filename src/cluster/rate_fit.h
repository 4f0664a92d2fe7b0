// Fits the rates of an op to measured times: seconds = launch + flops / rate + bytes / bandwidth, no term negative.
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

// For ops that only move data: the launch is the time of the smallest sample, every other sample gives a bandwidth.
// REQUIRES: at least two samples, by ascending bytes.
OpRate FitBandwidth(std::span<const TimedSample> samples);

}  // namespace temper
