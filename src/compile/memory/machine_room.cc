#include "compile/memory/machine_room.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "compile/residency/touches.h"
#include "graph/update_rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// Memory of a process beside its arenas: code and libraries, tokenizer, data, buffers of a save.
// tests/command_line/memory_test.cc checks whole runs against it.
constexpr Bytes kBesideArenas = MiB(150);
// Page tables take 1/512 of the memory mapped in small pages; some file pages are always in use.
constexpr int64_t kShareOfKernel = 64;

// Pinned memory cannot be swapped out or used for the page cache: the rest is left for these.
constexpr Bytes Pinnable(Bytes room) {
  return room / 4 * 3;
}

// An update of states on the disk works on copies at the host: a weight's states, its gradient and the weight (with
// AdamW 18 bytes per parameter if states are 12, 16 if they are 8; with SGD 14 and 12 for 8 and 4), plus losses of
// packing. With room for copies of neighbours, too, reading and writing overlap with the update. These are factors of
// the states, or of all copies, whichever is more.
constexpr double kLeastStaging = 2.25, kMostStaging = 4;
constexpr double kLeastOfAll = 1.125, kMostOfAll = 2;

// Bytes at the host during the update of one weight.
struct Updated {
  Bytes states, all;

  Bytes Times(double states_times, double all_times) const {
    const auto times = [](Bytes b, double factor) { return static_cast<int64_t>(static_cast<double>(b.v) * factor); };
    return {std::max(times(states, states_times), times(all, all_times))};
  }
};

int64_t PartFor(const Program& program, int64_t least) {
  int64_t trained = 0;
  for (const Buffer& b : program.buffers) trained += b.trainable ? b.type.shape.elements() : 0;
  return UpdatePartFor(trained, least);
}

// Whether a state is of an optimizer that cannot update in parts.
bool IsUpdatedWhole(std::string_view state) {
  for (const UpdateRule* rule : UpdateRules()) {
    for (const UpdateState& known : rule->states) {
      if (state.starts_with(known.NameOf(""))) return !rule->elementwise();
    }
  }
  return false;
}

// The maximum of each over all weights.
Updated LargestUpdate(const Program& program, int64_t update_part) {
  struct Tensors {
    Bytes bytes, of_element;
    bool whole = false;
    void Add(const TensorType& type) {
      bytes += AlignUp(type.bytes(), kAlignment);
      of_element += Bytes{SizeOf(type.dtype)};
    }
    Bytes AtHost(int64_t update_part) const { return whole ? bytes : UpdateAtHost(bytes, of_element, update_part); }
  };
  std::map<std::string, Tensors> states;
  std::set<std::string> masters;  // weights that have one
  for (const Buffer& b : program.buffers) {
    if (b.role != Role::kOptimizerState) continue;
    const std::string weight = b.name.substr(b.name.find(':') + 1);
    if (b.name == MasterName(weight)) masters.insert(weight);
    Tensors& of_weight = states[weight];
    of_weight.Add(b.type);
    of_weight.whole |= IsUpdatedWhole(b.name);
  }
  Updated largest;
  for (const Buffer& b : program.buffers) {
    if (!b.trainable) continue;
    Tensors of_states = states[b.name], all = of_states;
    all.Add(b.type);
    all.Add({DType::kF32, b.type.shape});  // its gradient
    // An f32 weight is its own master and is replaced beside its states.
    if (b.type.dtype == DType::kF32) of_states.of_element += Bytes{SizeOf(DType::kF32)};
    // A weight that is rounded stochastically has no master: its f32 copy passes through.
    if (b.type.dtype == DType::kBF16 && !masters.contains(b.name)) {
      of_states.Add({DType::kF32, b.type.shape});
      all.Add({DType::kF32, b.type.shape});
    }
    largest.states = std::max(largest.states, of_states.AtHost(update_part));
    largest.all = std::max(largest.all, all.AtHost(update_part));
  }
  return largest;
}

// Bytes of what updates on the disk may hold at the host at once beside the one at work: of each the last part of what
// it wrote, which stays until the segment after its own has ended (compile/layout/layout.cc).
Bytes LastParts(const Program& program, int64_t update_part) {
  Bytes most{}, before{};
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Segment& segment =
        program.segments[static_cast<size_t>(program.bindings[static_cast<size_t>(call.binding)].segment)];
    Bytes own{};
    for (const Instruction& instruction : segment.instructions) {
      const UpdateRule* const rule = UpdateRuleOf(instruction.op);
      if (rule == nullptr || !rule->elementwise() || update_part > kUpdatePart) continue;
      for (const int operand : instruction.outputs) {
        const TensorType& type = segment.operands[static_cast<size_t>(operand)];
        const int64_t elements = type.shape.elements();
        if (elements <= update_part) continue;  // whole: the search knows when there is room for it
        const int64_t last = (elements - 1) % update_part + 1;
        own += AlignUp(Bytes{last * SizeOf(type.dtype)}, kAlignment);
      }
    }
    most = std::max(most, before + own);
    before = own;
  }
  return most;
}

// Bytes of adapters: they stay in memory if a disk holds only values read from the model's files.
Bytes Adapters(const Program& program) {
  Bytes sum{};
  for (const Buffer& b : program.buffers) {
    if (b.role == Role::kAdapter) sum += AlignUp(b.type.bytes(), kAlignment);
  }
  return sum;
}

// The least memory of which RoomForArenas leaves `arenas`.
Bytes AvailableFor(Bytes arenas) {
  return {((arenas + kBesideArenas).v * kShareOfKernel + kShareOfKernel - 2) / (kShareOfKernel - 1)};
}

}  // namespace

Bytes RoomForArenas(Bytes available) {
  return std::max(available - available / kShareOfKernel - kBesideArenas, Bytes{});
}

std::vector<Bytes> SharesOfStages(const RankMemory& memory, const std::vector<Bytes>& needs, int ranks) {
  const int per_stage = ranks / static_cast<int>(needs.size()), here = memory.ranks_per_machine;
  if (here == 0) return std::vector<Bytes>(needs.size(), memory.each.bytes);
  std::vector<Bytes> shares(needs.size(), kNoLimit);
  for (int begin = 0; begin < ranks; begin += here) {
    std::vector<size_t> stages;  // of the machine's ranks
    for (int rank = begin; rank < std::min(begin + here, ranks); ++rank) {
      stages.push_back(static_cast<size_t>(rank / per_stage));
    }
    std::stable_sort(stages.begin(), stages.end(), [&](size_t a, size_t b) { return needs[a] < needs[b]; });
    Bytes left = memory.each.bytes * here;
    for (size_t k = 0; k < stages.size(); ++k) {
      const Bytes share = left / static_cast<int64_t>(stages.size() - k);
      shares[stages[k]] = std::min(shares[stages[k]], share);
      left = left - std::min(share, AvailableFor(needs[stages[k]]));
    }
  }
  return shares;
}

namespace {

Bytes RoomOnGpu(const Program& program, const ProcessMemory& available) {
  return available.gpu->for_arena(program, available.gpu->free, available.stages);
}
bool FitsOnGpu(const Program& program, const ProcessMemory& available) {
  return program.arena_bytes <= RoomOnGpu(program, available);
}
bool FitsBehindGpu(const Program& program, const ProcessMemory& available) {
  return program.host.bytes <= Pinnable(RoomForArenas(available.host.bytes));
}

// For a GPU, whose next tier is the host's memory.
MemorySpec LimitsOfGpu(const Program& as_asked, const MemorySpec& asked, const ProcessMemory& available) {
  const Bytes host = Pinnable(RoomForArenas(available.host.bytes)) - DiskBuffers(/*spills=*/true);
  MemorySpec limits = asked;
  limits.device = std::min(asked.device, RoomOnGpu(as_asked, available));
  limits.host = std::min(asked.host, std::max(host, Bytes{}));
  return limits;
}

}  // namespace

bool Fits(const Program& program, const ProcessMemory& available) {
  if (available.gpu) return FitsOnGpu(program, available) && FitsBehindGpu(program, available);
  return program.arena_bytes + program.host.bytes <= RoomForArenas(available.host.bytes);
}

std::optional<MemorySpec> LimitsOfMachine(const Program& as_asked, const MemorySpec& asked,
                                          const ProcessMemory& available) {
  const bool open = asked.device == kNoLimit || asked.host == kNoLimit;
  if (asked.policy != TierPolicy::kAuto || !open || Fits(as_asked, available)) return std::nullopt;
  if (available.gpu) return LimitsOfGpu(as_asked, asked, available);
  Bytes room = RoomForArenas(available.host.bytes);
  room = std::max(room - DiskBuffers(/*spills=*/true), Bytes{});
  MemorySpec limits = asked;
  if (asked.device != kNoLimit && asked.device < room) {
    limits.host = room - asked.device;
  } else if (asked.host != kNoLimit) {
    limits.host = std::min(asked.host, room / 2);
    limits.device = room - limits.host;
  } else {
    // The host tier is the same memory, so nothing waits there: it
    // holds only copies of values that move to the disk and back.
    limits.update_part = PartFor(as_asked, asked.update_part);
    const Updated update = LargestUpdate(as_asked, limits.update_part);
    const Bytes least = std::min(update.Times(kLeastStaging, kLeastOfAll), room * 3 / 4);
    const Bytes most = std::max(least, update.Times(kMostStaging, kMostOfAll));
    limits.host = std::clamp(room / 4, least, most) + Adapters(as_asked);
    const Bytes parts = LastParts(as_asked, limits.update_part);
    if (parts > Bytes{}) limits.host = std::max(limits.host, std::min(parts + update.all, room * 3 / 4));
    limits.device = std::max(room - limits.host, Bytes{});
    if (!limits.activations) limits.activations = Tier::kDevice;
  }
  return limits;
}

Status CheckRoom(const Program& program, const MemorySpec& asked, const ProcessMemory& available) {
  const bool placed = asked.policy != TierPolicy::kAuto;
  const bool named = placed || (asked.device != kNoLimit && asked.host != kNoLimit);
  if (available.gpu || !named || Fits(program, available)) return OkStatus();
  return OutOfMemory(
      fmt::format("{}. Nothing goes to the disk, because {}: remove that, or try --memory.recompute block, a smaller "
                  "--max_seq_len or --per_device_train_batch_size, or --method lora",
                  DescribeLimits(program, available),
                  placed ? "memory.tiers is set" : "memory.device and memory.host are both set"));
}

std::string DescribeLimits(const Program& as_asked, const ProcessMemory& available) {
  if (!available.gpu) {
    return fmt::format("everything in memory takes {}, but only {} of {} available can be used for it",
                       ToString(as_asked.arena_bytes + as_asked.host.bytes),
                       ToString(RoomForArenas(available.host.bytes)), available.host.ToString());
  }
  if (FitsOnGpu(as_asked, available) && !FitsBehindGpu(as_asked, available)) {
    return fmt::format("everything at the host takes {}, but only {} of {} available can be pinned for it",
                       ToString(as_asked.host.bytes), ToString(Pinnable(RoomForArenas(available.host.bytes))),
                       available.host.ToString());
  }
  const GpuRoom& gpu = *available.gpu;
  const std::string holders = gpu.holders ? gpu.holders() : "";
  return fmt::format("everything on the GPU takes {}, but only {} of {} free there ({} in all{}) can be used for it",
                     ToString(as_asked.arena_bytes), ToString(RoomOnGpu(as_asked, available)), ToString(gpu.free),
                     ToString(gpu.total), holders.empty() ? "" : "; " + holders);
}

}  // namespace temper
