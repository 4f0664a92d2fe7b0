#include "run/train_on.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/quantity.h"
#include "config/run_options.h"

namespace temper {
namespace {

constexpr char kUnset[] = "null";

std::string DescribeSchedule(const RunState& at, const SettledRun& before, const SettledRun& now) {
  const auto old = ScheduleOf(before.config, before.total_steps), next = ScheduleOf(now.config, now.total_steps);
  TEMPER_CHECK(old.ok() && next.ok()) << "a run that trained has a valid schedule, and the new one was checked";
  std::string text =
      fmt::format("the schedule is that of a run of {} with these settings: learning rate {:.4g} in step {}",
                  Counted(now.total_steps, "step"), next->At(at.step), at.step + 1);
  text += at.step < before.total_steps ? fmt::format(", not {:.4g}", old->At(at.step))
                                       : fmt::format(" (the old one ended with step {})", before.total_steps);
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
  if (now.rows_per_step == before.rows_per_step) {  // cut into other micro-batches, perhaps for other ranks
    std::erase_if(changed, [](const OptionDifference& d) {
      return d.name == "per_device_train_batch_size" || d.name == "gradient_accumulation_steps";
    });
  }
  std::vector<std::string> lines;
  for (const OptionDifference& d : changed) {
    lines.push_back(fmt::format("{} {}", d.name,
                                d.a == kUnset   ? d.b
                                : d.b == kUnset ? fmt::format("{} -> not set", d.a)
                                                : fmt::format("{} -> {}", d.a, d.b)));
  }
  if (lines.empty()) return lines;
  const auto schedule = [](const SettledRun& run) { return ScheduleOf(run.config, run.total_steps); };
  const bool rate_changes =
      now.total_steps != before.total_steps || schedule(before)->At(at.step) != schedule(now)->At(at.step);
  if (rate_changes && at.step < now.total_steps) lines.push_back(DescribeSchedule(at, before, now));
  if (now.rows_per_step != before.rows_per_step) lines.push_back(DescribeRows(at, rows_per_epoch, before, now));
  const bool other_eval =
      std::any_of(changed.begin(), changed.end(), [](const OptionDifference& d) { return d.name == "eval_data"; });
  if (at.best_eval_loss && other_eval) {
    lines.push_back(
        fmt::format("the best eval_loss so far, {:.4g}, is of the eval_data of before", *at.best_eval_loss));
  }
  return lines;
}

}  // namespace temper
