#include "api/plan_options.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"
#include "base/team.h"
#include "cluster/cluster_rates.h"
#include "compile/run/mesh_options.h"
#include "plan/planner.h"
#include "run/calibration.h"
#include "run/machine.h"
#include "run/rates_of_run.h"

namespace temper {

OptionGroup PlanOptions::Group() {
  return {"Report",
          {{.name = "cluster",
            .target = &cluster,
            .help = "plan for these machines: a preset (8xH100, 8xMI300X, ...), a file, or 'this', measured "
                    "when first needed",
            .value_hint = "NAME"},
           {.name = "price", .target = &price, .help = "price of a device per hour", .range = {.above = 0}},
           {.name = "trace",
            .target = &trace,
            .help = "write the simulated step as a Chrome trace, in the format of --profile",
            .value_hint = "FILE"},
           {.name = "html",
            .target = &html,
            .help = "write the plan as one self-contained page: memory over time, queues, sharding",
            .value_hint = "FILE"},
           {.name = "measured",
            .target = &measured,
            .help = "with html: show the median step of this trace (trace.json of --profile) beside the plan",
            .value_hint = "FILE"},
           {.name = "search",
            .target = &search,
            .help = "find the best mesh, micro-batch and recompute: throughput or fewest_devices",
            .value_hint = "GOAL"},
           {.name = "read_data",
            .target = &read_data,
            .help = "read the run's data: estimate attention from the lengths of its documents, not of rows"},
           {.name = "json", .target = &json, .help = "print the report as JSON"},
           {.name = "program", .target = &program, .help = "print the compiled Program itself"},
           {.name = "sharding",
            .target = &sharding,
            .help = "draw which parts of each weight every rank of the mesh holds"}}};
}

const char* PlanOptions::NeedsCluster() const {
  for (const auto& [name, given] : {std::pair{"search", !search.empty()}, std::pair{"html", !html.empty()},
                                    std::pair{"trace", !trace.empty()}, std::pair{"price", price.has_value()}}) {
    if (given) return name;
  }
  return nullptr;
}

Result<std::optional<Cluster>> ClusterOf(const PlanOptions& options, bool measure) {
  if (!options.cluster.empty() && options.cluster != "this") {
    TEMPER_ASSIGN_OR_RETURN(Cluster cluster, OpenClusterOrThis(PosixEnv(), options.cluster));
    return std::optional<Cluster>(std::move(cluster));
  }
  Result<Cluster> measured = OpenClusterOrThis(PosixEnv(), "this");
  if (!measured.ok() && measure) {
    LogInfo(fmt::format("measuring   this machine, once: about {}, longer beside other work",
                        ToString(CalibrationTakes())));
    TEMPER_RETURN_IF_ERROR(CalibrateAndSave(PosixEnv()).status());
    measured = OpenClusterOrThis(PosixEnv(), "this");
  }
  if (!measured.ok() && !options.cluster.empty()) return measured.status();
  return measured.ok() ? std::optional<Cluster>(std::move(*measured)) : std::nullopt;
}

Result<RunFacts> FactsOn(const std::optional<Cluster>& cluster, DeviceChoice device) {
  if (!cluster || cluster->shared) return MachineFacts(device);
  TEMPER_ASSIGN_OR_RETURN(RunFacts facts, MachineFacts(DeviceChoice::kCpu));
  facts.processor = cluster->device;
  facts.has_bf16 = cluster->has_bf16();
  facts.cpu_cores = 1;  // a device is one worker
  return facts;
}

Result<std::optional<RunRates>> RatesOnCluster(const RunConfig& config, const Cluster& cluster) {
  const std::string& option = config.machine.rates;
  const int on_host = std::min(RanksOn(cluster, config), cluster.devices_per_host);
  if (option == kTypicalRates) return std::optional(RatesIn(MemorySpecOf(config)));
  if (!IsNamed(option)) return std::optional<RunRates>();
  TEMPER_ASSIGN_OR_RETURN(const Cluster named, OpenClusterOrThis(PosixEnv(), option));
  return std::optional(RatesOn(named, on_host));
}

bool IsForThisMachine(const RunConfig& config) {
  return config.machine.device != DeviceChoice::kGpu && RanksNamed(config) <= AvailableProcessors();
}

}  // namespace temper
