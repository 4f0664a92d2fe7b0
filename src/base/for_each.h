// ForEach: independent items on several threads, for work that a process does now and then.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace temper {

// Calls each(i) for each i in [0, n), in no order, on up to `threads` threads, of which the caller is one; returns when
// all calls have returned. Every thread takes the next item when it has done one, so items may differ in length. The
// other threads are started here and end here (some 50 microseconds each); where the system gives no more threads,
// those that are there do the work. `each` must not throw; it may use a team of its own (base/team.h).
// REQUIRES: threads >= 1.
void ForEach(int64_t n, int threads, FunctionRef<void(int64_t)> each);

}  // namespace temper
