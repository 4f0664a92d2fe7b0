#include "run/rates_of_run.h"

#include <fmt/core.h>

#include "base/log.h"
#include "base/machine_memory.h"
#include "cluster/cluster_rates.h"

namespace temper {
namespace {

// Operands of the largest cases, of all ranks of a machine.
constexpr Bytes kRoomToMeasure = MiB(512);

// Whether the text in a checkpoint is of such a run on such a machine.
bool IsOf(const Cluster& cluster, const RunOnMachine& run) {
  return cluster.name == NameOf(run) && cluster.device == MachineOf(run);
}

}  // namespace

bool IsNamed(const std::string& option) {
  return option != kTypicalRates && option != kMeasuredRates;
}

// On the first rank: the text of rates that exist already, empty if they must be measured.
Result<std::string> RatesOfRun::Find() const {
  if (IsNamed(option_)) return ReadClusterOrThis(env_, option_);
  if (kept_) {
    const Result<Cluster> kept = ParseCluster(*kept_, kRatesFile);
    if (kept.ok() && IsOf(*kept, run_)) return *kept_;
    if (kept.ok()) {
      LogInfo(fmt::format("rates       the checkpoint's are of {} on {}; this is {} on {}", kept->name, kept->device,
                          NameOf(run_), MachineOf(run_)));
    }
  }
  return CalibrationOf(env_, run_).value_or("");
}

Result<bool> RatesOfRun::OnAll(bool here) const {
  double missing = here ? 0 : 1;
  if (!ranks_.alone()) TEMPER_RETURN_IF_ERROR(ranks_.communicator()->AllReduceMax({&missing, 1}));
  return missing == 0;
}

Result<std::optional<RunRates>> RatesOfRun::Ask(const Result<bool>& needed) {
  TEMPER_RETURN_IF_ERROR(ranks_.Agree(needed.status()));
  TEMPER_ASSIGN_OR_RETURN(const bool none, OnAll(!*needed));
  if (none || option_ == kTypicalRates) return std::optional<RunRates>();
  if (text_.empty()) {
    Result<std::string> found = ranks_.first() ? Find() : std::string();
    TEMPER_RETURN_IF_ERROR(ranks_.Agree(found.status()));
    TEMPER_ASSIGN_OR_RETURN(text_, ranks_.FromFirst(*found));
  }
  if (text_.empty()) {
    const bool room = FindAvailableMemory().bytes / run_.ranks >= kRoomToMeasure;
    TEMPER_ASSIGN_OR_RETURN(const bool all_have_room, OnAll(room));
    const Result<std::string> measured =
        all_have_room ? MeasureRun(env_, run_) : Result<std::string>(OutOfMemory("too little memory is free"));
    TEMPER_ASSIGN_OR_RETURN(const bool all_measured, OnAll(measured.ok()));
    if (!all_measured) {
      if (!measured.ok()) LogInfo(fmt::format("rates       typical ones: {}", measured.status().message()));
      return std::optional<RunRates>();
    }
    TEMPER_ASSIGN_OR_RETURN(text_, ranks_.FromFirst(*measured));
  }
  // Machines may have different numbers of ranks, but all choose alike.
  TEMPER_ASSIGN_OR_RETURN(const std::string on_first, ranks_.FromFirst(std::to_string(run_.ranks)));
  TEMPER_ASSIGN_OR_RETURN(const Cluster cluster, ParseCluster(text_, IsNamed(option_) ? option_ : kRatesFile));
  return std::optional(RatesOn(cluster, std::stoi(on_first)));
}

}  // namespace temper
