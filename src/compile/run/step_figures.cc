#include "compile/run/step_figures.h"

#include <algorithm>

namespace temper {

StepFigures Extrapolated(const StepFigures& low, int64_t more, std::span<const MoreOfKind> kinds) {
  StepFigures all = low;
  for (const MoreOfKind& kind : kinds) {
    const double times = kind.blocks / static_cast<double>(more);
    const StepFigures& high = kind.high;
    all.bytes += times * (high.bytes - low.bytes);
    all.seconds += times * (high.seconds - low.seconds);
    all.flops_per_token += times * (high.flops_per_token - low.flops_per_token);
    all.activations += times * (high.activations - low.activations);
    all.gradients += times * (high.gradients - low.gradients);
    all.optimizer += times * (high.optimizer - low.optimizer);
  }
  return all;
}

StepFigures InStages(const StepFigures& stage, int64_t stages, int64_t micro_batches) {
  StepFigures all = stage;
  all.seconds *= static_cast<double>(micro_batches + stages - 1) / static_cast<double>(micro_batches);
  all.bytes += stage.activations * static_cast<double>(std::min(stages, micro_batches) - 1);
  return all;
}

Seconds SecondsOfSpill(const StepFigures& figures, Bytes excess, Bytes on_disk, int64_t micro_batches,
                       const LinkRates& links, double host_bandwidth) {
  const auto on_host = static_cast<double>((excess - on_disk).v);
  const double states = std::min(on_host, figures.optimizer), weights = on_host - states;
  const double fetches = 2 * static_cast<double>(micro_batches);
  double seconds =
      states / 3 / links.device_to_host + states / 6 / links.host_to_device + weights * fetches / links.host_to_device;
  if (on_disk > Bytes{}) seconds += static_cast<double>(on_disk.v) * fetches / links.disk_read;
  // States are read and written there, and the gradient is read.
  if (host_bandwidth > 0) seconds += states * (2 + 1.0 / 3) / host_bandwidth;
  return {seconds};
}

StepFigures FiguresOfStep(const Program& train, const StepEstimate& estimate, Bytes bytes, double flops_per_token,
                          int64_t micro_batches) {
  double seconds = estimate.step.v;
  if (const int64_t more = micro_batches - kFewMicroBatches; more > 0) {
    seconds += static_cast<double>(more) * (estimate.micro_batches[1].v - estimate.micro_batches[0].v);
  }
  return {.bytes = static_cast<double>(bytes.v),
          .seconds = seconds,
          .flops_per_token = flops_per_token,
          .activations = static_cast<double>(train.peak.activations.v),
          .gradients = static_cast<double>(train.peak.gradients.v),
          .optimizer = static_cast<double>(train.peak.optimizer.v)};
}

}  // namespace temper
