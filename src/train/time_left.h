// TimeLeft: how long a run still takes, for the progress line: its steps, and the evaluations and saves still to come,
// by what the past ones took. An evaluation or a save counts once there has been one. One thread.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace temper {

class TimeLeft {
 public:
  // Of these `waited` was for a save.
  void Stepped(Seconds step, Seconds waited);
  void Evaluated(Seconds evaluation) { evaluations_.Add(evaluation.v); }
  // `save`: for which the run stood still; the rest is written beside the steps.
  void Saved(Seconds save) { saves_.Add(save.v); }
  // What the last save took in all. The run's last one has no steps beside it.
  void SavedWhole(Seconds save) { last_save_ = save.v; }

  struct ToCome {
    int64_t steps = 0, evaluations = 0, saves = 0;  // the last save is the run's end
  };
  Seconds Of(const ToCome& to_come) const;

 private:
  struct Mean {
    double sum = 0;
    int64_t n = 0;
    void Add(double seconds) {
      sum += seconds;
      ++n;
    }
    double value() const { return n == 0 ? 0 : sum / static_cast<double>(n); }
  };

  double step_ = 0;  // running mean
  Mean evaluations_, saves_;
  double last_save_ = 0;
};

}  // namespace temper
