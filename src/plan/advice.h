// Advice: settings that would make a run fit, each with its savings and its cost.
#pragma once

#include <string>
#include <vector>

#include "plan/forecast.h"

namespace temper {

struct Remedy {
  std::string settings;  // as the user would write them: "--memory.recompute block"
  Bytes bytes, limit, host_bytes;
  bool fits = false;
  double tokens_per_second = 0;
  Seconds step;
  std::string price;     // the price besides speed: "half the tokens of a row"; empty: none
  bool compiled = true;  // whole; else extrapolated from few blocks, and it certainly does not fit
};

// `before`: the run that does not fit.
std::string RemedyText(const std::vector<Remedy>& remedies, const Forecast& before);

// `before`: a run that fits, but whose step takes minutes.
std::string FasterText(const std::vector<Remedy>& faster, const Forecast& before);

}  // namespace temper
