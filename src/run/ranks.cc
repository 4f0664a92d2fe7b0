#include "run/ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/philox.h"
#include "base/quantity.h"
#include "base/stderr_log.h"
#include "comm/local/launch.h"
#include "comm/local/local_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/started_by_mpi.h"

namespace temper {

Result<Ranks> Ranks::Join() {
  Ranks ranks;
  if (const auto launched = RankFromEnvironment()) {
    TEMPER_ASSIGN_OR_RETURN(ranks.communicator_, JoinLaunched(*launched));
  } else if (StartedByMpi()) {
    TEMPER_ASSIGN_OR_RETURN(ranks.communicator_, JoinMpi());
    ranks.of_mpi_ = true;
    if (ranks.communicator_->size() == 1) ranks.communicator_.reset();
  }
  if (ranks.alone()) return ranks;
  const int rank = ranks.rank();
  if (ranks.size() > ranks.communicator_->host_ranks()) {
    ProcessLog().SetRank(rank, fmt::format("rank {} on {}", rank, ranks.communicator_->host_of(rank)));
  } else {
    ProcessLog().SetRank(rank, rank == 0 ? "" : fmt::format("rank {}", rank));
  }
  return ranks;
}

bool Ranks::StartedBySrun() {
  return StartedByMpi() && !RankFromEnvironment() && temper::StartedBySrun();
}

Status Ranks::Agree(const Status& own) const {
  if (alone() || agreed_failure_) return own;
  // The first failed rank gives the largest number, which contains its error's code.
  constexpr int kCodes = 256;
  double failed = own.ok() ? 0 : static_cast<double>((size() - rank()) * kCodes + static_cast<int>(own.code()));
  const double mine = failed;
  TEMPER_RETURN_IF_ERROR(communicator_->AllReduceMax({&failed, 1}));
  if (failed == 0) return OkStatus();
  agreed_failure_ = true;
  if (mine == failed) return own;
  return {static_cast<StatusCode>(static_cast<int>(failed) % kCodes), ""};
}

Result<std::string> Ranks::From(int rank, const std::string& text) const {
  if (alone()) return text;
  int64_t length = static_cast<int64_t>(text.size());
  TEMPER_RETURN_IF_ERROR(communicator_->Broadcast(std::as_writable_bytes(std::span(&length, 1)), rank));
  std::string shared = text;
  shared.resize(static_cast<size_t>(length));
  TEMPER_RETURN_IF_ERROR(
      communicator_->Broadcast(std::as_writable_bytes(std::span(shared.data(), shared.size())), rank));
  return shared;
}

Status Ranks::CheckSame(const std::string& own,
                        const std::function<Status(const std::string& firsts)>& different) const {
  TEMPER_ASSIGN_OR_RETURN(const std::string firsts, FromFirst(own));
  return Agree(own == firsts ? OkStatus() : different(firsts));
}

Status Ranks::CheckDifferent(const std::string& own, const std::function<Status(int one, int other)>& same) const {
  if (alone()) return OkStatus();
  // Each rank's text as a number, in halves that a double holds exactly.
  std::vector<double> halves(2 * static_cast<size_t>(size()), 0);
  const uint64_t number = own.empty() ? 0 : HashName(own);
  const auto at = 2 * static_cast<size_t>(rank());
  halves[at] = static_cast<double>(number >> 32);
  halves[at + 1] = static_cast<double>(number & 0xFFFFFFFF);
  TEMPER_RETURN_IF_ERROR(communicator_->AllReduceSum(halves));
  std::map<std::pair<double, double>, int> first;
  for (int r = 0; r < size(); ++r) {
    const auto i = 2 * static_cast<size_t>(r);
    const std::pair of{halves[i], halves[i + 1]};
    if (of == std::pair{0.0, 0.0}) continue;
    const auto [it, is_new] = first.emplace(of, r);
    if (!is_new) return Agree(same(it->second, r));
  }
  return OkStatus();
}

std::string Ranks::Hosts() const {
  std::vector<std::pair<std::string, int>> hosts;  // in the order of their first ranks
  for (int r = 0; !alone() && r < size(); ++r) {
    const std::string host = communicator_->host_of(r);
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == host; });
    known == hosts.end() ? (void)hosts.emplace_back(host, 1) : (void)++known->second;
  }
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kShown); ++i) {
    const auto& [host, ranks] = hosts[i];
    text += i == 0 ? fmt::format("{} on {}", Counted(ranks, "rank"), host) : fmt::format(", {} on {}", ranks, host);
  }
  if (hosts.size() > kShown) text += fmt::format(" and as many more on {} hosts", hosts.size() - kShown);
  return text;
}

Result<int> Ranks::End(Result<int> result) const {
  if (result.ok() || alone()) return result;
  const Status failure = result.status();
  if (!agreed_failure_) communicator_->Abort(failure);
  const bool tells = agreed_failure_ || communicator_->ReportsFailure();
  const bool has_words = !failure.message().empty();
  if (tells && has_words) LogError(failure.message());
  // mpirun ends all ranks after the first failure and drops the others'
  // output: let the rank that has reported the error end first.
  if (!has_words && of_mpi_) std::this_thread::sleep_for(std::chrono::seconds(1));
  return Status(failure.code(), "");
}

void Ranks::EndNow(const Status& failure) const {
  if (communicator_->ReportsFailure()) LogError(failure.message());
  std::_Exit(1);  // as for any error
}

Result<int> StartRanks(int ranks) {
  TEMPER_ASSIGN_OR_RETURN(const LaunchResult result, Launch({.ranks = ranks}));
  if (!result.message.empty()) LogError(result.message);
  return result.exit_code;
}

}  // namespace temper
