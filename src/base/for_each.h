// ForEach: independent items on several threads, for occasional work.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace temper {

// Calls each(i) for each i in [0, n), in no order, on up to `threads` threads including the caller; returns when all
// calls have returned. Every thread takes the next item when it has finished one, so items may differ in length. The
// other threads start and end here (some 50 microseconds each); if the system refuses more threads, those that started
// do the work. `each` must not throw; it may use a team of its own (base/team.h).
// REQUIRES: threads >= 1.
void ForEach(int64_t n, int threads, FunctionRef<void(int64_t)> each);

}  // namespace temper
