#include "program/program.h"

#include <fmt/format.h>

#include "base/philox.h"

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
    const auto where = [&] { return fmt::format("segment {} instruction {} {}", segment.name, i, ToString(instruction.op)); };
    for (const auto* list : {&instruction.inputs, &instruction.outputs}) {
      for (int operand : *list) {
        if (operand < 0 || operand >= static_cast<int>(segment.operands.size())) {
          return Corrupt(fmt::format("{}: operand {} of {}", where(), operand, segment.operands.size()));
        }
      }
    }
    const Result<Types> types = RuleOf(instruction.op).infer(OperandTypes(segment, instruction.inputs), instruction.attributes);
    if (!types.ok()) return types.status().WithContext(where());
    if (!(*types == OperandTypes(segment, instruction.outputs))) return Corrupt(where() + ": outputs of other types");
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
      const Cost c = RuleOf(i.op).cost(OperandTypes(segment, i.inputs), OperandTypes(segment, i.outputs), i.attributes);
      sum.flops += c.flops;
      sum.read += c.read;
      sum.written += c.written;
    }
    per_segment.push_back(sum);
  }
  Cost step;
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Cost& c = per_segment[static_cast<size_t>(program.bindings[static_cast<size_t>(call.binding)].segment)];
    step.flops += c.flops;
    step.read += c.read;
    step.written += c.written;
  }
  return step;
}

Status Verify(const Program& program) {
  const auto outside = [&](Bytes offset, Bytes size) {
    return offset.v < 0 || size.v < 0 || offset.v % kAlignment != 0 || offset > program.arena_bytes - size;
  };
  if (outside(program.workspace_offset, program.workspace_bytes)) return Corrupt("program: workspace leaves the arena");
  for (const Buffer& b : program.buffers) {
    if (outside(b.offset, b.type.bytes())) return Corrupt(fmt::format("program: buffer {} leaves the arena", b.name));
  }
  for (const Segment& segment : program.segments) TEMPER_RETURN_IF_ERROR(CheckSegment(segment));
  for (size_t i = 0; i < program.bindings.size(); ++i) {
    const Binding& binding = program.bindings[i];
    if (binding.segment < 0 || binding.segment >= static_cast<int>(program.segments.size())) {
      return Corrupt(fmt::format("program: binding {} of segment {}, which does not exist", i, binding.segment));
    }
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    if (binding.offsets.size() != segment.operands.size() || binding.rng_hashes.size() != segment.instructions.size()) {
      return Corrupt(fmt::format("program: binding {} does not fit segment {}", i, segment.name));
    }
    for (size_t k = 0; k < segment.operands.size(); ++k) {
      if (outside(binding.offsets[k], segment.operands[k].bytes())) {
        return Corrupt(fmt::format("program: binding {} operand {} leaves the arena", i, k));
      }
    }
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

uint64_t ProgramHash(const Program& program) { return HashName(PrintProgram(program)); }

}  // namespace temper
