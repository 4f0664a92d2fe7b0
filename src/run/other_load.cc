#include "run/other_load.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "base/kernel_text.h"

namespace temper {
namespace {

Seconds OwnTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Seconds sum;
  for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
    sum.v += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

}  // namespace

std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view stat, const std::vector<int>& processors,
                                                  double ticks_per_second) {
  // cpuN user nice system idle iowait irq softirq steal ...: proc(5).
  constexpr size_t kIdle = 4, kIoWait = 5, kSteal = 8;
  ProcessorTimes times;
  size_t found = 0;
  for (const std::string_view line : Split(stat, '\n')) {
    const std::vector<std::string_view> words = Split(line, ' ');
    if (words.size() <= kSteal || !words[0].starts_with("cpu")) continue;
    const std::optional<int64_t> processor = NumberIn(words[0].substr(3));
    if (!processor || std::find(processors.begin(), processors.end(), *processor) == processors.end()) continue;
    ++found;
    for (size_t column = 1; column <= kSteal; ++column) {
      if (column == kIdle || column == kIoWait) continue;
      Seconds& sum = column == kSteal ? times.stolen : times.busy;
      sum.v += static_cast<double>(NumberIn(words[column]).value_or(0)) / ticks_per_second;
    }
  }
  if (found != processors.size()) return std::nullopt;
  return times;
}

OtherLoad::OtherLoad(Env& env) : env_(env) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &allowed)) processors_.push_back(i);
    }
  }
  start_ = Now();
}

std::optional<OtherLoad::Moment> OtherLoad::Now() const {
  const long ticks = sysconf(_SC_CLK_TCK);
  if (ticks <= 0 || processors_.empty()) return std::nullopt;
  const auto all = ParseProcessorTimes(ReadKernelText(env_, "/proc/stat"), processors_, static_cast<double>(ticks));
  if (!all) return std::nullopt;
  const auto clock = std::chrono::steady_clock::now().time_since_epoch();
  return Moment{*all, OwnTime(), {std::chrono::duration<double>(clock).count()}};
}

OtherLoad::Taken OtherLoad::Between(const Moment& begin, const Moment& end) {
  const double passed = end.clock.v - begin.clock.v;
  if (passed <= 0) return {};
  const double own = end.own.v - begin.own.v;
  // The OS counts in ticks, so that a difference may come out below zero.
  return {.others = std::max(0.0, end.all.busy.v - begin.all.busy.v - own) / passed,
          .stolen = std::max(0.0, end.all.stolen.v - begin.all.stolen.v) / passed};
}

std::optional<OtherLoad::Taken> OtherLoad::SinceStart() const {
  const std::optional<Moment> now = Now();
  if (!start_ || !now) return std::nullopt;
  return Between(*start_, *now);
}

std::string DescribeOtherLoad(const std::optional<OtherLoad::Taken>& taken, int processors,
                              const std::vector<double>& peaks) {
  constexpr double kNotable = 0.05;  // of the processors
  constexpr double kSteady = 0.8;    // of the highest
  std::vector<std::string> what;
  if (taken && taken->others > kNotable * processors) {
    what.push_back(fmt::format("other programs took {:.1f} of {} processors", taken->others, processors));
  }
  if (taken && taken->stolen > kNotable * processors) {
    what.push_back(fmt::format("the host took {:.1f} of {} processors", taken->stolen, processors));
  }
  const auto [least, most] = std::minmax_element(peaks.begin(), peaks.end());
  if (least != peaks.end() && *least < kSteady * *most) {
    what.push_back(fmt::format("the multipliers reached {:.0f} to {:.0f} GFLOP/s", *least * 1e-9, *most * 1e-9));
  }
  return fmt::format("{}", fmt::join(what, " and "));
}

}  // namespace temper
