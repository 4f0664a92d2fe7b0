// The ranks of a run as the commands know them: who starts them, how one joins, how they agree.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/communicator.h"
#include "run/processor.h"

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
  // This one's place among those of its machine.
  RankOfMachine of_machine() const {
    return alone() ? RankOfMachine()
                   : RankOfMachine{communicator_->host_rank(), communicator_->host_ranks(), /*launched=*/!of_mpi_};
  }

  // All ranks make these calls at the same places.
  // The same outcome for all: OK where `own` is OK on every rank, else the first failed rank's own error there, and one
  // of the same code without a message elsewhere.
  Status Agree(const Status& own) const;
  // Agree has told all ranks of a failure: they end in order, and nobody need be told.
  bool all_know() const { return agreed_failure_; }
  // What the first rank has, on every rank. The text is any bytes.
  Result<std::string> FromFirst(const std::string& text) const;
  // Agrees that all have the text that the first has. `different` says what is wrong where this one has another.
  Status CheckSame(const std::string& own, const std::function<Status(const std::string& firsts)>& different) const;
  // Agrees that no two have the same text; "" is nobody's. `same` says what is wrong where two ranks have.
  Status CheckDifferent(const std::string& own, const std::function<Status(int one, int other)>& same) const;

  // How this rank's part of the run ended, as its process is to end. After a failure one rank alone tells the user,
  // here; and no other one waits for this one.
  Result<int> End(Result<int> result) const;
  // The same where the rank's own thread does not come back: this process ends here. Any thread.
  [[noreturn]] void EndNow(const Status& failure) const;

 private:
  std::unique_ptr<Communicator> communicator_;
  bool of_mpi_ = false;
  mutable bool agreed_failure_ = false;  // all ranks know, and end in order
};

// Runs one copy of this program per rank, each with its share of the cores, until all have ended. Returns the exit code
// of the run.
Result<int> StartRanks(int ranks);

}  // namespace temper
