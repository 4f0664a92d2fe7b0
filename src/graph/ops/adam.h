// What the rules of adamw and adamw_8bit share.
#pragma once

#include "graph/update_rule.h"

namespace temper {

extern const UpdateSetting kAdamSettings[3];  // PyTorch's defaults

// UpdateRule::fill_scalars. The corrections are made up for here: double precision and pow on the host, once a step.
void FillAdamScalars(const Attributes& settings, int64_t step, std::span<double> scalars);

}  // namespace temper
