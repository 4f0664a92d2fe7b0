// PlanRun: compiles the same Program as a training, and reports on it. Reads config.json, but no weights.
#pragma once

#include <functional>
#include <string>

#include "api/plan_options.h"
#include "api/temper.h"
#include "api/train_setup.h"

namespace temper {

// Whom the plan is shown to.
struct PlanFace {
  // Gets what is reported, piece by piece, before anything is logged that follows it. May be empty.
  std::function<void(const std::string& text)> print;
  bool explains_waiting = false;        // by a line, where it takes long
  bool colours = false, boxes = false;  // of drawings
};

// What it says besides goes to the log of this thread.
Result<PlanResult> PlanRun(RunRequest request, const PlanOptions& options, const PlanFace& face);

}  // namespace temper
