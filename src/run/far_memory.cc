#include "run/far_memory.h"

#include <fmt/core.h>

#include "backend/cpu/cpu_backend.h"
#include "base/log.h"

namespace temper {
namespace {

// The places of the disk tier's frozen weights in the model's files.
// kUnsupported: not all are stored there in the required form.
Result<std::vector<DiskTier::MappedRegion>> MapFrozen(const Program& program, const OpenedModel& model) {
  std::vector<DiskTier::MappedRegion> regions;
  for (const Buffer& b : program.buffers) {
    if (b.tier() != Tier::kDisk || !IsFrozen(b)) continue;
    const View view{nullptr, b.type};
    TEMPER_ASSIGN_OR_RETURN(
        StoredSlice slice,
        model.FindStored(b.name, b.shard ? PartView(view, b.shard->global, b.shard->begin) : PartView(view)));
    regions.push_back({b.offset - BaseOf(Tier::kDisk), std::move(slice)});
  }
  return regions;
}

Bytes EndOfWritten(const Program& program) {
  Bytes end{};
  for (const Buffer& b : program.buffers) {
    if (b.tier() == Tier::kDisk && !IsFrozen(b)) {
      end = std::max(end, AlignUp(b.offset - BaseOf(Tier::kDisk) + b.type.bytes(), kDirectBlock));
    }
  }
  return end;
}

}  // namespace

Bytes TransferBuffers(const Program& program) {
  return program.disk.bytes.v > 0 ? DiskBuffers(/*spills=*/EndOfWritten(program).v > 0) : Bytes{};
}

Result<FarArenas> ReserveFar(const Program& program, const std::string& folder, const OpenedModel& model,
                             Device* device, int threads) {
  FarArenas far;
  if (program.host.bytes.v > 0) {
    TEMPER_ASSIGN_OR_RETURN(far.host, Arena::Create(program.host.bytes));
  }
  if (device != nullptr && far.host != nullptr) {
    TEMPER_RETURN_IF_ERROR(far.host->PinFor(*device));
    far.host_threads = threads;
    far.host_kernels = MakeCpuKernels({.threads = far.host_threads});
  }
  if (program.disk.bytes.v == 0) return far;
  DiskTier::Spec spec{.folder = folder, .spill = EndOfWritten(program)};
  auto mapped = MapFrozen(program, model);
  if (mapped.ok()) {
    spec.mapped = std::move(*mapped);
    for (const Buffer& b : program.buffers) {
      if (b.tier() == Tier::kDisk && IsFrozen(b)) far.mapped.insert(b.name);
    }
  } else if (mapped.status().code() == StatusCode::kUnsupported) {
    LogInfo(fmt::format("memory      frozen weights are copied to {}: {}", folder, mapped.status().message()));
    spec.spill = program.disk.bytes;
  } else {
    return mapped.status();
  }
  if (spec.spill.v > 0 && spec.folder.empty()) {
    return InvalidArgument(fmt::format("the run keeps {} on a disk, but memory.disk names no folder: set memory.disk",
                                       ToString(spec.spill)));
  }
  auto disk = DiskTier::Create(PosixEnv(), std::move(spec));
  if (!disk.ok()) return disk.status().WithContext("values that do not fit in memory go to a disk (memory.disk)");
  far.disk = std::move(*disk);
  return far;
}

}  // namespace temper
