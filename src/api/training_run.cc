#include "api/training_run.h"

namespace temper {

PackingOptions TrainingRun::Packing() const {
  return {.max_seq_len = *config().data.max_seq_len,
          .packing = config().data.packing,
          .passes = PassesOf(data.dataset, config().data.data)};
}

int64_t TrainingRun::RowsPerStep() const {
  const RunConfig::Batch& batch = config().batch;
  return batch.per_device_train_batch_size * batch.gradient_accumulation_steps * compiled.data_ranks();
}

Peers TrainingRun::peers() const {
  const MeshSpec& mesh = compiled.mesh;
  return {.communicator = setup.ranks.communicator(),
          .data_ranks = compiled.data_ranks(),
          .data_rank = compiled.data_rank(),
          .context_ranks = mesh.mesh.size(Axis::kCp),
          .context_rank = mesh.mesh.Coordinate(mesh.rank, Axis::kCp),
          .stages = mesh.mesh.size(Axis::kPp)};
}

std::string TrainingRun::SpillFolder() const {
  return config().memory.disk.empty() ? config().output.output_dir : config().memory.disk;
}

RunOnMachine TrainingRun::OnMachine() const {
  const RunConfig& c = config();
  return {.ranks = setup.ranks.of_machine().ranks,
          .threads = static_cast<int>(*c.machine.threads),
          .dtype = ComputeDType(c),
          .gpu = engine.gpu.get(),
          .folder = SpillFolder()};
}

}  // namespace temper
