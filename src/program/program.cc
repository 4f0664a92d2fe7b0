#include "program/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/philox.h"

namespace temper {
namespace {

Types OperandTypes(const Segment& segment, const std::vector<int>& indices) {
  Types types;
  for (int i : indices) types.push_back(segment.operands[static_cast<size_t>(i)]);
  return types;
}

Status CheckSegment(const Segment& segment, const Program& program) {
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
    const auto workspace = RuleOf(instruction.op).workspace;
    if (workspace == nullptr) continue;
    const Bytes scratch =
        workspace(OperandTypes(segment, instruction.inputs), outputs, instruction.attributes, program.threads);
    if (scratch > program.workspace_bytes) {
      return Corrupt(fmt::format("{}: needs {} bytes of scratch, the workspace has {}", where(), scratch.v,
                                 program.workspace_bytes.v));
    }
  }
  return OkStatus();
}

// Names stand in quotes in the text form.
Status CheckNames(const Program& program) {
  const auto printable = [](const std::string& name) { return name.find_first_of("\"\n") == name.npos; };
  bool good = printable(program.name) && printable(program.peak_instruction);
  for (const Buffer& b : program.buffers) good = good && printable(b.name);
  for (const Segment& s : program.segments) good = good && printable(s.name);
  return good ? OkStatus() : Corrupt("program: a name holds a quote or a line break");
}

bool IsOutside(const Program& program, Bytes offset, Bytes size) {
  return offset.v < 0 || offset.v % kAlignment != 0 || size > program.arena_bytes ||
         offset > program.arena_bytes - size;
}

// A part of the arena that belongs to one buffer, or (buffer == nullptr) to the workspace.
struct Region {
  Bytes begin, end;
  const Buffer* buffer = nullptr;
  std::string ToString() const { return buffer != nullptr ? "buffer " + buffer->name : "the workspace"; }
};

// By offset, none overlapping another.
Result<std::vector<Region>> PersistentRegions(const Program& program) {
  std::vector<Region> regions;
  if (program.workspace_bytes.v < 0 || IsOutside(program, program.workspace_offset, program.workspace_bytes)) {
    return Corrupt("program: the workspace leaves the arena or is misaligned");
  }
  if (program.workspace_bytes.v > 0) {
    regions.push_back({program.workspace_offset, program.workspace_offset + program.workspace_bytes});
  }
  for (const Buffer& b : program.buffers) {
    if (IsOutside(program, b.offset, b.type.bytes())) {
      return Corrupt(fmt::format("program: buffer {} leaves the arena or is misaligned", b.name));
    }
    if (b.type.bytes().v > 0) regions.push_back({b.offset, b.offset + b.type.bytes(), &b});
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < regions.size(); ++i) {
    if (regions[i].begin < regions[i - 1].end) {
      return Corrupt(fmt::format("program: {} overlaps {}", regions[i].ToString(), regions[i - 1].ToString()));
    }
  }
  return regions;
}

Status CheckBinding(const Program& program, const Binding& binding, const std::vector<Region>& regions) {
  if (binding.segment < 0 || binding.segment >= static_cast<int>(program.segments.size())) {
    return Corrupt(fmt::format("program: segment {} does not exist", binding.segment));
  }
  const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
  if (binding.offsets.size() != segment.operands.size() || binding.rng_hashes.size() != segment.instructions.size()) {
    return Corrupt(fmt::format("program: does not fit segment {}", segment.name));
  }
  const auto end_of = [&](size_t k) { return binding.offsets[k] + segment.operands[k].bytes(); };
  for (size_t k = 0; k < segment.operands.size(); ++k) {
    const TensorType& type = segment.operands[k];
    if (IsOutside(program, binding.offsets[k], type.bytes())) {
      return Corrupt(fmt::format("program: operand {} leaves the arena or is misaligned", k));
    }
    // An operand is a whole buffer, or lies between buffers.
    const auto next = std::upper_bound(regions.begin(), regions.end(), binding.offsets[k],
                                       [](Bytes offset, const Region& r) { return offset < r.end; });
    if (next == regions.end() || next->begin >= end_of(k)) continue;
    if (next->buffer == nullptr || next->begin != binding.offsets[k] || !(next->buffer->type == type)) {
      return Corrupt(fmt::format("program: operand {} {} overlaps {}", k, type.ToString(), next->ToString()));
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

Status Verify(const Program& program) {
  if (program.threads < 1 || program.threads > kMaxThreads) {
    return Corrupt(fmt::format("program: {} threads; 1 to {} are possible", program.threads, kMaxThreads));
  }
  if (program.arena_bytes.v < 0 || program.arena_bytes.v > kMaxArenaBytes) return Corrupt("program: absurd arena");
  TEMPER_RETURN_IF_ERROR(CheckNames(program));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Region> regions, PersistentRegions(program));
  for (const Segment& segment : program.segments) TEMPER_RETURN_IF_ERROR(CheckSegment(segment, program));
  for (size_t i = 0; i < program.bindings.size(); ++i) {
    TEMPER_RETURN_IF_ERROR(
        CheckBinding(program, program.bindings[i], regions).WithContext(fmt::format("binding {}", i)));
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
