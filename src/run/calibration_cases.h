// The cases that calibration times: small instances of every op of a training step, stated by the ops' rules.
#pragma once

#include <vector>

#include "run/kernel_timer.h"

namespace temper {

// Cases of one op, class and dtype; their times together give one rate.
struct RateCases {
  Op op;
  OpClass op_class;
  DType dtype;
  bool computes = false;  // fitted with arithmetic (FitRate); else by bytes alone (FitBandwidth), ascending
  std::vector<TimedCase> cases;
};

// Cases for all ops that a step in `dtype` (f32 or bf16) runs. Optimizer ops, whose states are f32, are under f32.
std::vector<RateCases> CalibrationCases(DType dtype);

}  // namespace temper
