#include "cli/machine_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "disk/disk_tier.h"

namespace temper {
namespace {

// What a process takes beside its arenas: code and libraries, tokenizer, data, what a save needs. Whole runs are held
// to it by tests/command_line/memory_test.cc.
constexpr Bytes kBesideArenas = MiB(150);
// Page tables take 1/512 of what is mapped in small pages; some pages of files are always in use.
constexpr int64_t kShareOfKernel = 64;

// AdamW on states that live on the disk works on copies at the host: the states of a weight, its gradient and the
// weight itself (18 bytes per parameter where states are 12, 16 where they are 8), and what is packed around them. With
// copies of the neighbours, too, reading and writing go on beside it.
constexpr double kLeastStaging = 2.25, kMostStaging = 4;

// States of the weight that has most of them.
Bytes LargestStates(const Program& program) {
  std::map<std::string, Bytes> states;
  Bytes largest{};
  for (const Buffer& b : program.buffers) {
    if (b.role != Role::kOptimizerState) continue;
    Bytes& of_weight = states[b.name.substr(b.name.find(':') + 1)];
    of_weight += AlignUp(b.type.bytes(), kAlignment);
    largest = std::max(largest, of_weight);
  }
  return largest;
}

Bytes Times(Bytes bytes, double factor) {
  return {static_cast<int64_t>(static_cast<double>(bytes.v) * factor)};
}

// Where a disk holds only what is read from the model's own files, adapters stay in memory.
Bytes Adapters(const Program& program) {
  Bytes sum{};
  for (const Buffer& b : program.buffers) {
    if (b.role == Role::kAdapter) sum += AlignUp(b.type.bytes(), kAlignment);
  }
  return sum;
}

// The least of which RoomForArenas leaves `arenas`.
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

std::optional<MemorySpec> LimitsOfMachine(const Program& as_asked, const MemorySpec& asked, Bytes available) {
  Bytes room = RoomForArenas(available);
  const bool open = asked.device == kNoLimit || asked.host == kNoLimit;
  if (asked.placement != MemoryPlacement::kAuto || !open) return std::nullopt;
  if (as_asked.arena_bytes + as_asked.host.bytes <= room) return std::nullopt;
  room = std::max(room - DiskTier::BufferBytes(/*spills=*/true), Bytes{});
  MemorySpec limits = asked;
  if (asked.device != kNoLimit && asked.device < room) {
    limits.host = room - asked.device;
  } else if (asked.host != kNoLimit) {
    limits.host = std::min(asked.host, room / 2);
    limits.device = room - limits.host;
  } else {
    // What waits at the host waits in the same memory: there lie only copies of what goes to the disk and back.
    const Bytes states = LargestStates(as_asked);
    const Bytes least = std::min(Times(states, kLeastStaging), room * 3 / 4);
    limits.host = std::clamp(room / 4, least, std::max(least, Times(states, kMostStaging))) + Adapters(as_asked);
    limits.device = std::max(room - limits.host, Bytes{});
    if (!limits.activations) limits.activations = Tier::kDevice;
  }
  return limits;
}

Result<std::vector<Program>> CompileForwardWithin(const AvailableMemory& available, const MemorySpec& asked,
                                                  const ForwardCompiler& compile) {
  ChosenMemory chosen;
  std::string because;
  TEMPER_ASSIGN_OR_RETURN(std::vector<Program> programs, compile(asked, &chosen));
  if (const auto limits = LimitsOfMachine(programs[0], asked, available.bytes)) {
    because = DescribeLimits(programs[0], available);
    auto within = compile(*limits, &chosen);
    if (!within.ok()) return within.status().WithContext(because);
    programs = std::move(*within);
    because += ": ";
  }
  if (!chosen.text.empty()) LogInfo("memory      " + because + chosen.ToString());
  return programs;
}

std::string DescribeLimits(const Program& as_asked, const AvailableMemory& available) {
  return fmt::format("everything in memory takes {}, and of {} available {} are left for it",
                     ToString(as_asked.arena_bytes + as_asked.host.bytes), available.ToString(),
                     ToString(RoomForArenas(available.bytes)));
}

}  // namespace temper
