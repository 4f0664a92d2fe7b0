#include "run/far_memory.h"

#include <fmt/core.h>

#include "backend/cpu/cpu_backend.h"
#include "base/log.h"

namespace temper {
namespace {

// The disk tier's frozen weights that are read from their places in the model's files, by name. `why_not`: of one that
// is not, where some are not.
Result<std::set<std::string>> MapFrozen(const Program& program, const OpenedModel& model,
                                        std::vector<DiskTier::MappedRegion>* regions, std::string* why_not) {
  std::set<std::string> mapped;
  for (const Buffer& b : program.buffers) {
    if (b.tier() != Tier::kDisk || !IsFrozen(b)) continue;
    const View view{nullptr, b.type};
    const auto slices =
        model.FindStored(b.name, b.shard ? PartView(view, b.shard->global, b.shard->begin) : PartView(view));
    if (slices.status().code() == StatusCode::kUnsupported) {
      *why_not = slices.status().message();
      continue;
    }
    TEMPER_RETURN_IF_ERROR(slices.status());
    Bytes at = b.offset - BaseOf(Tier::kDisk);
    for (const StoredSlice& slice : *slices) {
      regions->push_back({at, slice});
      at += slice.bytes();
    }
    mapped.insert(b.name);
  }
  return mapped;
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
  std::string why_not;
  TEMPER_ASSIGN_OR_RETURN(far.mapped, MapFrozen(program, model, &spec.mapped, &why_not));
  Bytes copied;
  for (const Buffer& b : program.buffers) {
    if (b.tier() != Tier::kDisk || !IsFrozen(b) || far.mapped.contains(b.name)) continue;
    spec.copied.push_back({b.offset - BaseOf(Tier::kDisk), b.type.bytes()});
    copied += b.type.bytes();
  }
  if (copied.v > 0) {
    LogInfo(fmt::format("memory      {} of frozen weights are copied to {}: {}", ToString(copied), folder, why_not));
  }
  if (spec.spill.v + copied.v > 0 && spec.folder.empty()) {
    return InvalidArgument(fmt::format("the run keeps {} on a disk, but memory.disk names no folder: set memory.disk",
                                       ToString(spec.spill + copied)));
  }
  auto disk = DiskTier::Create(PosixEnv(), std::move(spec));
  if (!disk.ok()) return disk.status().WithContext("values that do not fit in memory go to a disk (memory.disk)");
  far.disk = std::move(*disk);
  return far;
}

}  // namespace temper
