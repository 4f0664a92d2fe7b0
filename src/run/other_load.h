// OtherLoad: what else used this process's processors while it measured something: other programs, and on a virtual
// machine its host's other guests. From /proc/stat, beside the process's own times.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/units.h"

namespace temper {

// Of some processors since they started, by all programs; what a host took from them.
struct ProcessorTimes {
  Seconds busy, stolen;
};
// From /proc/stat's text; nullopt if one of `processors` is not in it. REQUIRES: ticks_per_second > 0.
std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view stat, const std::vector<int>& processors,
                                                  double ticks_per_second);

class OtherLoad {
 public:
  // Watches from here on. `env` must outlive it.
  explicit OtherLoad(Env& env);

  // Processors that others took on average.
  struct Taken {
    double others = 0, stolen = 0;
  };
  std::optional<Taken> SinceStart() const;  // nullopt where the OS does not say

  // `own`: what this process used of `all` since it started.
  struct Moment {
    ProcessorTimes all;
    Seconds own, clock;
  };
  static Taken Between(const Moment& begin, const Moment& end);

 private:
  std::optional<Moment> Now() const;

  Env& env_;
  std::vector<int> processors_;
  std::optional<Moment> start_;
};

// For people: "other programs took 0.8 of 2 processors". `peaks`: what the multipliers reached from time to time, in
// FLOP/s. Empty: nothing that matters.
std::string DescribeOtherLoad(const std::optional<OtherLoad::Taken>& taken, int processors,
                              const std::vector<double>& peaks);

}  // namespace temper
