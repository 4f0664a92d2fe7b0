// repeats: a step of many micro-batches that are alike, estimated from few of them. After some micro-batches each adds
// the same to every queue, so the time of a walk grows linearly with their number.
#pragma once

#include <functional>
#include <span>

#include "compile/estimate/step_estimate.h"
#include "program/program.h"

namespace temper {

// Micro-batches of a schedule that run the same bindings, one after the other: `count` times `each` calls from `begin`
// on.
struct Repeats {
  size_t begin = 0, each = 0, count = 0;
};
// The longest run of these; each of its micro-batches loads its inputs first. count == 0: there are none.
Repeats FindRepeats(std::span<const Call> schedule);

// What `walk` gives for a schedule; schedules of many micro-batches are walked with 16 and with 32 of those that are
// alike, and the line through both is followed. `walk` keeps no events.
StepEstimate EstimateRepeated(std::span<const Call> schedule,
                              const std::function<StepEstimate(std::span<const Call>)>& walk);

}  // namespace temper
