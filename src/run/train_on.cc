#include "run/train_on.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/quantity.h"
#include "config/run_options.h"

namespace temper {
namespace {

constexpr char kUnset[] = "null";

// Empty if the next step has the rate that it would have had.
std::string DescribeSchedule(const RunState& at, const SettledRun& before, const SettledRun& now) {
  const auto old = ScheduleOf(before.config, before.total_steps), next = ScheduleOf(now.config, now.total_steps);
  TEMPER_CHECK(next.ok()) << next.status().message();
  const bool ended = at.step >= before.total_steps || !old.ok();
  if (!ended && before.total_steps == now.total_steps && old->At(at.step) == next->At(at.step)) return "";
  std::string text =
      fmt::format("the schedule is that of a run of {} with these settings: learning rate {:.4g} in step {}",
                  Counted(now.total_steps, "step"), next->At(at.step), at.step + 1);
  text += ended ? fmt::format(" (the old one ended with step {})", before.total_steps)
                : fmt::format(", not {:.4g}", old->At(at.step));
  if (next->warmup_steps > at.step) {
    text +=
        fmt::format(", with {} of {} left", next->warmup_steps - at.step, Counted(next->warmup_steps, "warmup step"));
  }
  return text;
}

std::string DescribeRows(const RunState& at, int64_t rows_per_epoch, const SettledRun& before, const SettledRun& now) {
  // A used up epoch is followed by the next.
  const bool used_up = at.sampler.next_row == rows_per_epoch;
  return fmt::format(
      "a step has {}, not {}; the next row is {} of {} in epoch {}: none is left out and none comes twice",
      Counted(now.rows_per_step, "row"), before.rows_per_step, used_up ? 1 : at.sampler.next_row + 1, rows_per_epoch,
      at.sampler.epoch + (used_up ? 2 : 1));
}

}  // namespace

std::vector<std::string> DescribeTrainOn(const RunState& at, int64_t rows_per_epoch, const SettledRun& before,
                                         const SettledRun& now) {
  std::vector<OptionDifference> changed = Differences(before.config, now.config, OnResume::kGoesOn);
  std::vector<std::string> lines;
  for (const OptionDifference& d : changed) {
    lines.push_back(fmt::format("{} {}", d.name,
                                d.a == kUnset   ? d.b
                                : d.b == kUnset ? fmt::format("{} -> not set", d.a)
                                                : fmt::format("{} -> {}", d.a, d.b)));
  }
  if (lines.empty()) return lines;
  const bool cut = std::any_of(changed.begin(), changed.end(), [](const OptionDifference& d) {
    return d.name == "per_device_train_batch_size" || d.name == "gradient_accumulation_steps";
  });
  if (cut && now.rows_per_step == before.rows_per_step) {
    lines.push_back(fmt::format("a step has the same {} in other micro-batches: sums are rounded in another order",
                                Counted(now.rows_per_step, "row")));
  }
  if (at.step < now.total_steps) {
    if (std::string schedule = DescribeSchedule(at, before, now); !schedule.empty())
      lines.push_back(std::move(schedule));
  }
  if (now.rows_per_step != before.rows_per_step) lines.push_back(DescribeRows(at, rows_per_epoch, before, now));
  return lines;
}

}  // namespace temper
