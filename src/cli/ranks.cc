#include "cli/ranks.h"

#include "base/log.h"
#include "comm/local/launch.h"
#include "comm/local/local_communicator.h"
#include "comm/mpi/mpi_communicator.h"

namespace temper {

Result<Ranks> Ranks::Join() {
  Ranks ranks;
  if (const auto launched = RankFromEnvironment()) {
    TEMPER_ASSIGN_OR_RETURN(ranks.communicator_, JoinLaunched(*launched));
    SetLogRank(launched->rank);
  } else if (StartedByMpi()) {
    TEMPER_ASSIGN_OR_RETURN(ranks.communicator_, JoinMpi());
    SetLogRank(ranks.communicator_->rank());
    if (ranks.communicator_->size() == 1) ranks.communicator_.reset();
  }
  return ranks;
}

Status Ranks::Agree(const Status& own) const {
  if (alone()) return own;
  double failed = own.ok() ? 0 : static_cast<double>(size() - rank());  // the first that failed gives the largest
  const double mine = failed;
  TEMPER_RETURN_IF_ERROR(communicator_->AllReduceMax({&failed, 1}));
  if (failed == 0) return OkStatus();
  if (mine == failed) return own;
  return Interrupted("");  // the rank that failed says why
}

Result<std::string> Ranks::FromFirst(const std::string& text) const {
  if (alone()) return text;
  int64_t length = static_cast<int64_t>(text.size());
  TEMPER_RETURN_IF_ERROR(communicator_->Broadcast(std::as_writable_bytes(std::span(&length, 1)), 0));
  std::string shared = text;
  shared.resize(static_cast<size_t>(length));
  TEMPER_RETURN_IF_ERROR(communicator_->Broadcast(std::as_writable_bytes(std::span(shared.data(), shared.size())), 0));
  return shared;
}

}  // namespace temper
