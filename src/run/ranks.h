// The ranks of a run, for the commands: how they start, join and agree.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/communicator.h"
#include "run/processor.h"

namespace temper {

class Ranks {
 public:
  // Joins according to how this process was started: by --nprocs, by mpirun or srun, or alone.
  static Result<Ranks> Join();

  // srun ends all ranks with SIGTERM when one has failed; mpirun kills them soon after, and --nprocs leaves them time.
  static bool StartedBySrun();

  bool alone() const { return communicator_ == nullptr; }
  int size() const { return alone() ? 1 : communicator_->size(); }
  int rank() const { return alone() ? 0 : communicator_->rank(); }
  bool first() const { return rank() == 0; }
  Communicator* communicator() const { return communicator_.get(); }
  // This rank's place among those of its machine.
  RankOfMachine of_machine() const {
    return alone() ? RankOfMachine()
                   : RankOfMachine{communicator_->host_rank(), communicator_->host_ranks(), /*launched=*/!of_mpi_};
  }

  // All ranks make these calls at the same places.
  // The same result for all: OK if `own` is OK on every rank; else the first failed rank gets its own error, the others
  // one of the same code without a message.
  Status Agree(const Status& own) const;
  // All ranks know of a failure from Agree: they end in order and need not be told.
  bool all_know() const { return agreed_failure_; }
  // Returns that rank's text on every rank. It may be any bytes.
  Result<std::string> From(int rank, const std::string& text) const;
  Result<std::string> FromFirst(const std::string& text) const { return From(0, text); }
  // Where the ranks run, for messages: "4 ranks on n1", "2 ranks on n1, 2 on n2". Empty if alone.
  std::string Hosts() const;
  // Checks that all have the same text as the first. `different` makes the error if this rank has another.
  Status CheckSame(const std::string& own, const std::function<Status(const std::string& firsts)>& different) const;
  // Checks that no two have the same text; "" does not count. `same` makes the error if two ranks do.
  Status CheckDifferent(const std::string& own, const std::function<Status(int one, int other)>& same) const;

  // Turns the result of this rank's part of the run into its process's exit code. After a failure only one rank reports
  // it, here, and no other rank waits for this one.
  Result<int> End(Result<int> result) const;
  // The same if the rank's own thread is stuck: ends this process. Any thread.
  [[noreturn]] void EndNow(const Status& failure) const;

 private:
  std::unique_ptr<Communicator> communicator_;
  bool of_mpi_ = false;
  mutable bool agreed_failure_ = false;  // all ranks know of it, and end in order
};

// Runs one copy of this program per rank, each with its share of
// the cores, until all have ended. Returns the run's exit code.
Result<int> StartRanks(int ranks);

}  // namespace temper
