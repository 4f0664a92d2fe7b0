// Rows of tokens among those of experts, as route (graph/ops/route.cc) has placed them: what kernels check and find out
// before they read or write by them.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.h"

namespace temper {

// An error if a place is not one of the P rows. Costs a pass over the places.
Status CheckPlaces(const int32_t* place_N, int64_t N, int64_t P);

// From the expert of each row, writes the first row of each expert to first_E1, and P behind the last. An error where
// rows are not sorted by expert, or an expert is not among those that there are. Costs a pass over the rows.
Status FindExpertRows(const int32_t* expert_P, int64_t P, int64_t experts, int32_t* first_E1);

// The most rows of an expert for which products are planned: each runs with the smallest plan that takes its rows,
// since a plan for more cuts its operands into pieces that suit more. An element's sum does not depend on the plan.
inline constexpr std::array<int64_t, 3> kRowsOfPlans = {32, 256, 1024};

}  // namespace temper
