// The ranks of a run as the commands know them: who starts them, how one joins, how they agree.
#pragma once

#include <memory>
#include <string>

#include "device/communicator.h"

namespace temper {

class Ranks {
 public:
  // This process as it was started: a rank of --nprocs, of mpirun or srun, or the only one.
  static Result<Ranks> Join();

  bool alone() const { return communicator_ == nullptr; }
  int size() const { return alone() ? 1 : communicator_->size(); }
  int rank() const { return alone() ? 0 : communicator_->rank(); }
  bool first() const { return rank() == 0; }
  Communicator* communicator() const { return communicator_.get(); }

  // The same outcome for all: OK where `own` is OK on every rank, else the first failed rank's own error there, and one
  // without a message elsewhere. All ranks call this at the same place.
  Status Agree(const Status& own) const;
  // What the first rank has, on every rank. The text is any bytes.
  Result<std::string> FromFirst(const std::string& text) const;

 private:
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace temper
