#include "run/scalar_kernels.h"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "backend/cpu/scalar_fallback.h"
#include "base/log.h"
#include "graph/rule.h"

namespace temper {
namespace {

// Elements of all operands together. A scalar kernel processes some 10^8 to 10^9 of them per second.
constexpr int64_t kFew = 1 << 12;

KernelSpec ScalarSpecOf(const Program& program, const Segment& segment, const Instruction& instruction) {
  KernelSpec spec{.op = instruction.op, .attributes = instruction.attributes, .threads = program.threads};
  for (const int k : instruction.inputs) spec.inputs.push_back(segment.operands[static_cast<size_t>(k)]);
  for (const int k : instruction.outputs) spec.outputs.push_back(segment.operands[static_cast<size_t>(k)]);
  const OpRule& rule = RuleOf(spec.op);
  if (rule.workspace != nullptr)
    spec.workspace = rule.workspace(spec.inputs, spec.outputs, spec.attributes, spec.threads);
  return spec;
}

bool IsSmall(const KernelSpec& spec) {
  int64_t elements = 0;
  for (const auto* types : {&spec.inputs, &spec.outputs}) {
    for (const TensorType& t : *types) elements += t.shape.elements();
  }
  return elements < kFew;
}

}  // namespace

std::vector<std::string> ScalarKernels(const Program& program, Isa isa) {
  std::vector<std::string> lines;
  std::set<std::pair<Op, std::string>> told;
  std::set<std::string> seen;  // instructions with equal op, operands and attributes have the same kernel
  for (const Segment& segment : program.segments) {
    for (const Instruction& instruction : segment.instructions) {
      if (IsMove(instruction.op) || IsCollective(instruction.op)) continue;
      const KernelSpec spec = ScalarSpecOf(program, segment, instruction);
      if (IsSmall(spec)) continue;
      std::string operands;
      for (const TensorType& t : spec.inputs) operands += (operands.empty() ? "" : ", ") + t.ToString();
      const std::string key = fmt::format("{} {} {}", ToString(spec.op), operands, spec.attributes.ToString());
      if (!seen.insert(key).second) continue;
      const auto why = WhyScalar(spec, isa);
      if (!why || !told.emplace(spec.op, *why).second) continue;
      lines.push_back(
          fmt::format("{} of {} runs on a scalar kernel, which is slow: {}", ToString(spec.op), operands, *why));
    }
  }
  return lines;
}

void WarnOfScalarKernels(const CompiledRun& run, DeviceChoice device) {
  if (device != DeviceChoice::kCpu) return;
  const Isa isa = DetectIsa();
  if (isa == Isa::kScalar) {
    LogWarning("all kernels are scalar, which is slow: vector kernels need at least AVX2");
    return;
  }
  std::set<std::string> told;
  for (const Program& program : run.programs) {
    for (const std::string& line : ScalarKernels(program, isa)) {
      if (told.insert(line).second) LogWarning(line);
    }
  }
}

}  // namespace temper
