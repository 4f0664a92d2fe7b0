#include "plan/forecast.h"

#include <algorithm>

namespace temper {
namespace {

// All but bytes and times of micro-batches.
void AddPasses(const StepEstimate& pass, double passes, StepEstimate* step) {
  for (Seconds StepEstimate::*const part :
       {&StepEstimate::step, &StepEstimate::arithmetic, &StepEstimate::memory, &StepEstimate::launches,
        &StepEstimate::collectives, &StepEstimate::moves, &StepEstimate::waiting, &StepEstimate::stalled,
        &StepEstimate::stages, &StepEstimate::hidden}) {
    step->*part += Seconds{(pass.*part).v * passes};
  }
}

}  // namespace

Forecast ForecastOf(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                    const StepFacts& facts, bool keep_events, std::span<const Program* const> beside) {
  const int on_host = std::min(mesh.ranks(), cluster.devices_per_host);
  Forecast f{.limit = cluster.MemoryOf(on_host), .host_limit = cluster.HostMemoryOf(on_host)};
  for (const Program* const program : stages) {
    f.bytes = std::max(f.bytes, program->arena_bytes);
    f.host_bytes = std::max(f.host_bytes, program->host.bytes);
    f.disk_bytes = std::max(f.disk_bytes, program->disk.bytes);
  }
  std::vector<StepEstimate> simulations = Simulate(stages, mesh, cluster, keep_events);
  if (!beside.empty()) {
    const std::vector<StepEstimate> passes = Simulate(beside, mesh, cluster);
    for (size_t k = 0; k < simulations.size(); ++k) AddPasses(passes[k], facts.passes_beside, &simulations[k]);
  }
  Seconds waited, all;
  for (const StepEstimate& s : simulations) {
    waited += s.stages;
    all += s.step;
  }
  if (all.v > 0) f.bubble = waited.v / all.v;
  f.simulation = std::move(simulations[0]);
  // On a shared machine, host and device use the same memory.
  f.fits = cluster.shared ? f.bytes + f.host_bytes <= f.limit : f.bytes <= f.limit && f.host_bytes <= f.host_limit;
  const double step = f.simulation.step.v;
  if (step <= 0) return f;
  f.tokens_per_second = static_cast<double>(facts.tokens) / step;
  f.mfu = facts.model_flops.v / (step * cluster.ShareOf(on_host).peak(facts.dtype) * mesh.ranks());
  const double per_second = cluster.price_per_device_hour * mesh.ranks() / 3600;
  f.price_per_million_tokens = per_second / f.tokens_per_second * 1e6;
  return f;
}

}  // namespace temper
