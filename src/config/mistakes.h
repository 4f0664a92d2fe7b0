// Mistakes: what is wrong with settings, all of it at once, so that a user mends it in one go.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace temper {

class Mistakes {
 public:
  // `where`: the file, or "command line". `advice`: a last line where several names are those of other tools.
  Mistakes(std::string where, std::string advice) : where_(std::move(where)), advice_(std::move(advice)) {}

  // Counts `status` if it is an error.
  void Add(const Status& status);
  void CountForeign(bool foreign) { foreign_ += foreign ? 1 : 0; }
  // A generated file may be wrong in every line; what is beyond is counted, not told.
  bool TellsMore() const { return shown_ < kMostShown; }

  // One mistake is told as it is; several as a list, a line each.
  Status status() const;

 private:
  static constexpr size_t kMostShown = 100;

  const std::string where_, advice_;
  size_t mistakes_ = 0, shown_ = 0, foreign_ = 0;
  Status first_ = OkStatus();
  std::string list_;
};

}  // namespace temper
