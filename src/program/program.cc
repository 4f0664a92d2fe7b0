#include "program/program.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/philox.h"
#include "graph/ops/move_part.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

Types OperandTypes(const Segment& segment, const std::vector<int>& indices) {
  Types types;
  for (int i : indices) types.push_back(segment.operands[static_cast<size_t>(i)]);
  return types;
}

Status CheckSegment(const Segment& segment) {
  for (size_t i = 0; i < segment.instructions.size(); ++i) {
    const Instruction& instruction = segment.instructions[i];
    const auto where = [&] {
      return fmt::format("segment {} instruction {} {}", segment.name, i, ToString(instruction.op));
    };
    for (const auto* list : {&instruction.inputs, &instruction.outputs}) {
      for (int operand : *list) {
        if (operand < 0 || operand >= static_cast<int>(segment.operands.size())) {
          return Corrupt(fmt::format("{}: operand {} of {}", where(), operand, segment.operands.size()));
        }
      }
    }
    const Result<Types> types =
        InferTypes(instruction.op, OperandTypes(segment, instruction.inputs), instruction.attributes);
    if (!types.ok()) return types.status().WithContext(where());
    const Types outputs = OperandTypes(segment, instruction.outputs);
    if (!(*types == outputs)) return Corrupt(where() + ": outputs of other types");
  }
  return OkStatus();
}

// Names stand in quotes in the text form.
Status CheckNames(const Program& program) {
  const auto printable = [](const std::string& name) {
    return std::none_of(name.begin(), name.end(), [](char c) { return c == '"' || c == '\n'; });
  };
  bool good = printable(program.name) && printable(program.peak_instruction);
  for (const Buffer& b : program.buffers) good = good && printable(b.name);
  for (const Segment& s : program.segments) good = good && printable(s.name);
  return good ? OkStatus() : Corrupt("program: a name holds a quote or a line break");
}

bool IsOutside(const Program& program, Bytes address, Bytes size) {
  if (address.v < 0 || address >= BaseOf(static_cast<Tier>(kNumTiers))) return true;
  const Tier tier = TierOf(address);
  const Bytes offset = address - BaseOf(tier), arena = program.bytes_in(tier);
  return offset.v % kAlignment != 0 || size > arena || offset > arena - size;
}

// A part of an arena that belongs to one buffer.
struct Region {
  Bytes begin, end;
  const Buffer* buffer;
};

// Of the persistent buffers, or of the transient ones: by offset, none overlapping another.
Result<std::vector<Region>> RegionsOf(const Program& program, bool transient) {
  std::vector<Region> regions;
  for (const Buffer& b : program.buffers) {
    if (b.transient != transient) continue;
    if (IsOutside(program, b.offset, b.type.bytes())) {
      return Corrupt(fmt::format("program: buffer {} leaves the arena or is misaligned", b.name));
    }
    if (b.type.bytes().v > 0) regions.push_back({b.offset, b.offset + b.type.bytes(), &b});
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < regions.size(); ++i) {
    if (regions[i].begin < regions[i - 1].end) {
      return Corrupt(
          fmt::format("program: buffer {} overlaps buffer {}", regions[i].buffer->name, regions[i - 1].buffer->name));
    }
  }
  return regions;
}

// The first region that shares a byte with [begin, end), or nullptr.
const Region* Overlapped(const std::vector<Region>& regions, Bytes begin, Bytes end) {
  const auto next = std::upper_bound(regions.begin(), regions.end(), begin,
                                     [](Bytes offset, const Region& r) { return offset < r.end; });
  return next == regions.end() || next->begin >= end ? nullptr : &*next;
}

// All of them are there when the step ends: they lie apart, and beside the persistent ones.
Status CheckTransient(const Program& program, const std::vector<Region>& persistent) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Region> transient, RegionsOf(program, /*transient=*/true));
  for (const Region& r : transient) {
    const Region* const other = Overlapped(persistent, r.begin, r.end);
    if (other == nullptr) continue;
    return Corrupt(fmt::format("program: buffer {} overlaps buffer {}", r.buffer->name, other->buffer->name));
  }
  return OkStatus();
}

// Kernels touch one tier, which is not the disk; moves go from one tier to another.
Status CheckTiers(const Segment& segment, const Instruction& instruction, const Binding& binding) {
  const auto refuse = [&](const char* what) {
    return Corrupt(fmt::format("program: {} {}: {}", segment.name, ToString(instruction.op), what));
  };
  const auto tier = [&](int operand) { return TierOf(binding.offsets[static_cast<size_t>(operand)]); };
  if (IsMove(instruction.op)) {
    const Tier from = tier(instruction.inputs[0]), to = tier(instruction.outputs[0]);
    const bool good = instruction.op == TrafficOp::kFetch ? to < from : from < to;
    return good ? OkStatus() : refuse("does not go towards its side");
  }
  std::optional<Tier> all;
  for (const auto* list : {&instruction.inputs, &instruction.outputs}) {
    for (const int operand : *list) {
      if (all.value_or(tier(operand)) != tier(operand)) return refuse("its operands lie in several tiers");
      all = tier(operand);
    }
  }
  return all == Tier::kDisk ? refuse("its operands lie on the disk") : OkStatus();
}

// Scratch of instruction `i` lies beside its operands, in their tier, and between buffers.
Status CheckScratch(const Program& program, const Segment& segment, size_t i, Bytes size, const Binding& binding,
                    const std::vector<Region>& regions) {
  const Instruction& instruction = segment.instructions[i];
  const Bytes begin = binding.scratch[i];
  const auto refuse = [&](const std::string& what) {
    return Corrupt(fmt::format("program: {} instruction {} {}: its {} bytes of scratch {}", segment.name, i,
                               ToString(instruction.op), size.v, what));
  };
  if (size.v <= 0) return begin.v == 0 ? OkStatus() : refuse("have an address");
  if (IsOutside(program, begin, size)) return refuse("leave the arena or are misaligned");
  const Bytes end = begin + size;
  if (const Region* region = Overlapped(regions, begin, end)) return refuse("overlap buffer " + region->buffer->name);
  for (const auto* list : {&instruction.inputs, &instruction.outputs}) {
    for (const int operand : *list) {
      const auto k = static_cast<size_t>(operand);
      if (TierOf(binding.offsets[k]) != TierOf(begin)) return refuse("lie in another tier than its operands");
      if (binding.offsets[k] < end && begin < binding.offsets[k] + segment.operands[k].bytes()) {
        return refuse(fmt::format("overlap operand {}", operand));
      }
    }
  }
  return OkStatus();
}

// `scratch`: of the segment's instructions.
Status CheckBinding(const Program& program, const Binding& binding, const std::vector<Bytes>& scratch,
                    const std::vector<Region>& regions) {
  const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
  if (binding.offsets.size() != segment.operands.size() || binding.rng_hashes.size() != segment.instructions.size() ||
      binding.scratch.size() != segment.instructions.size()) {
    return Corrupt(fmt::format("program: does not fit segment {}", segment.name));
  }
  const auto end_of = [&](size_t k) { return binding.offsets[k] + segment.operands[k].bytes(); };
  for (size_t k = 0; k < segment.operands.size(); ++k) {
    const TensorType& type = segment.operands[k];
    if (IsOutside(program, binding.offsets[k], type.bytes())) {
      return Corrupt(fmt::format("program: operand {} leaves the arena or is misaligned", k));
    }
    // An operand is a whole buffer, or lies between buffers.
    const Region* const region = Overlapped(regions, binding.offsets[k], end_of(k));
    if (region == nullptr) continue;
    if (region->begin != binding.offsets[k] || !(region->buffer->type == type)) {
      return Corrupt(
          fmt::format("program: operand {} {} overlaps buffer {}", k, type.ToString(), region->buffer->name));
    }
  }
  const auto overlap = [&](int a, int b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return binding.offsets[i] < end_of(j) && binding.offsets[j] < end_of(i);
  };
  for (size_t i = 0; i < segment.instructions.size(); ++i) {
    const Instruction& instruction = segment.instructions[i];
    const auto refuse = [&](int a, int b) {
      return Corrupt(fmt::format("program: {} instruction {} {}: its operands {} and {} overlap", segment.name, i,
                                 ToString(instruction.op), a, b));
    };
    TEMPER_RETURN_IF_ERROR(CheckTiers(segment, instruction, binding));
    TEMPER_RETURN_IF_ERROR(CheckScratch(program, segment, i, scratch[i], binding, regions));
    const int num_inputs = static_cast<int>(instruction.inputs.size());
    for (size_t o = 0; o < instruction.outputs.size(); ++o) {
      const int output = instruction.outputs[o];
      const int free = OverwritableInput(instruction.op, instruction.attributes, num_inputs, static_cast<int>(o));
      for (int k = 0; k < num_inputs; ++k) {
        const int input = instruction.inputs[static_cast<size_t>(k)];
        if (overlap(output, input) && !(k == free && output == input)) return refuse(output, input);
      }
      for (size_t other = 0; other < o; ++other) {
        if (overlap(output, instruction.outputs[other])) return refuse(output, instruction.outputs[other]);
      }
    }
  }
  return OkStatus();
}

}  // namespace

int Program::FindBuffer(std::string_view wanted) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].name == wanted) return static_cast<int>(i);
  }
  return -1;
}

Bytes ScratchOf(const Program& program, const Segment& segment, const Instruction& instruction) {
  const auto workspace = RuleOf(instruction.op).workspace;
  if (workspace == nullptr) return {};
  return workspace(OperandTypes(segment, instruction.inputs), OperandTypes(segment, instruction.outputs),
                   instruction.attributes, program.threads);
}

Cost CostOfStep(const Program& program) {
  std::vector<Cost> per_segment;
  for (const Segment& segment : program.segments) {
    Cost sum;
    for (const Instruction& i : segment.instructions) {
      sum += RuleOf(i.op).cost(OperandTypes(segment, i.inputs), OperandTypes(segment, i.outputs), i.attributes);
    }
    per_segment.push_back(sum);
  }
  Cost step;
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    step += per_segment[static_cast<size_t>(program.bindings[static_cast<size_t>(call.binding)].segment)];
  }
  return step;
}

std::vector<LinkTraffic> TrafficOfStep(const Program& program) {
  Bytes moved[kNumTiers][kNumTiers] = {};
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    for (const Instruction& i : segment.instructions) {
      if (!IsMove(i.op)) continue;
      const auto from = static_cast<size_t>(i.inputs[0]), to = static_cast<size_t>(i.outputs[0]);
      const TensorType* const second =
          i.inputs.size() == 2 ? &segment.operands[static_cast<size_t>(i.inputs[1])] : nullptr;
      moved[static_cast<int>(TierOf(binding.offsets[from]))][static_cast<int>(TierOf(binding.offsets[to]))] +=
          BytesOnLink(segment.operands[from], second, segment.operands[to], i.attributes);
    }
  }
  std::vector<LinkTraffic> traffic;
  for (int from = 0; from < kNumTiers; ++from) {
    for (int to = 0; to < kNumTiers; ++to) {
      if (moved[from][to].v > 0) traffic.push_back({static_cast<Tier>(from), static_cast<Tier>(to), moved[from][to]});
    }
  }
  return traffic;
}

Status Verify(const Program& program) {
  if (program.threads < 1 || program.threads > kMaxThreads) {
    return Corrupt(fmt::format("program: {} threads; 1 to {} are possible", program.threads, kMaxThreads));
  }
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const Bytes size = program.bytes_in(tier);
    if (size.v < 0 || size.v > kMaxArenaBytes) return Corrupt("program: absurd arena");
  }
  TEMPER_RETURN_IF_ERROR(CheckNames(program));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Region> regions, RegionsOf(program, /*transient=*/false));
  TEMPER_RETURN_IF_ERROR(CheckTransient(program, regions));
  std::vector<std::vector<Bytes>> scratch;  // per segment and instruction
  for (const Segment& segment : program.segments) {
    TEMPER_RETURN_IF_ERROR(CheckSegment(segment));
    std::vector<Bytes>& of_segment = scratch.emplace_back();
    for (const Instruction& i : segment.instructions) of_segment.push_back(ScratchOf(program, segment, i));
  }
  for (size_t i = 0; i < program.bindings.size(); ++i) {
    const Binding& binding = program.bindings[i];
    const auto where = [i] { return fmt::format("binding {}", i); };
    if (binding.segment < 0 || binding.segment >= static_cast<int>(program.segments.size())) {
      return Corrupt(fmt::format("program: segment {} does not exist", binding.segment)).WithContext(where());
    }
    const Status status = CheckBinding(program, binding, scratch[static_cast<size_t>(binding.segment)], regions);
    if (!status.ok()) return status.WithContext(where());
  }
  for (const Call& call : program.schedule) {
    if (call.kind == Call::Kind::kRun &&
        (call.binding < 0 || call.binding >= static_cast<int>(program.bindings.size()))) {
      return Corrupt(fmt::format("program: the schedule runs binding {}, which does not exist", call.binding));
    }
    if (call.micro_batch < 0) return Corrupt("program: negative micro-batch");
  }
  return OkStatus();
}

uint64_t ProgramHash(const Program& program) {
  return HashName(PrintProgram(program));
}

}  // namespace temper
