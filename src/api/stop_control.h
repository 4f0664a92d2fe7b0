// StopControl: how whoever started a run asks it to end early: the program by signals, another program by a token.
#pragma once

namespace temper {

class StopControl {
 public:
  virtual ~StopControl() = default;
  // The run's thread asks between the parts of its preparation (with one rank), between its steps, and within an
  // evaluation.
  virtual bool Asked() const = 0;
  // From now on a run that is asked to stop finishes its step and saves. Once, before the first step.
  virtual void StepsBegin() {}
  // Whether who asked knows that already.
  virtual bool IsTold() const { return false; }
  // The run ends before its last step, as asked or because it diverged.
  virtual void EndsEarly() {}
};

}  // namespace temper
