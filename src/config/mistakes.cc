#include "config/mistakes.h"

#include <fmt/core.h>

namespace temper {

void Mistakes::Add(const Status& status) {
  if (status.ok()) return;
  if (++mistakes_ == 1) first_ = status;
  if (!TellsMore()) return;
  ++shown_;
  list_ += "\n  " + status.message();
}

Status Mistakes::status() const {
  if (mistakes_ == 0) return OkStatus();
  if (mistakes_ == 1) return first_;
  const size_t more = mistakes_ - shown_;
  return InvalidArgument(fmt::format("{}: {} mistakes:{}{}{}", where_, mistakes_, list_,
                                     more == 0 ? "" : fmt::format("\n  and {} more", more),
                                     foreign_ < 2 ? "" : "\n" + advice_));
}

}  // namespace temper
