#include "compile/train_step.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "program/program_names.h"

namespace temper {
namespace {

Result<CompiledPrograms> CompileStep(std::span<const RunGraph> graphs, const StepSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(const PreparedStep step, PreparedStep::Of(graphs, spec));
  TEMPER_ASSIGN_OR_RETURN(std::vector<StepChoice> choices, step.Choices(spec.memory));
  if (spec.memory.IsLimited() && spec.mesh.rank != step.first_of_stage()) {
    StepSpec first = spec;
    first.mesh.rank = step.first_of_stage();
    TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms chosen, CompileStep(graphs, first));
    choices = {chosen.memory.choice};
  }
  return FitStep(step, spec.memory, choices);
}

Result<CompiledPrograms> CompileForward(std::span<const RunGraph> graphs, const StepSpec& spec) {
  TEMPER_CHECK(spec.mesh.mesh.ranks() == 1) << "evaluation or decoding alone, on mesh " << spec.mesh.mesh.ToString();
  CompiledPrograms compiled;
  TEMPER_ASSIGN_OR_RETURN(auto programs,
                          FitForward(spec.memory, ForwardStep(graphs, spec), spec.threads, &compiled.memory));
  compiled.programs = ProgramSet(std::move(programs));
  return compiled;
}

}  // namespace

Result<CompiledPrograms> FitStep(const PreparedStep& step, const MemorySpec& memory,
                                 std::span<const StepChoice> choices) {
  CompiledPrograms compiled{.decisions = step.decisions()};
  const StepMaker make_all = [&](const StepChoice& choice) { return step.Make(choice); };
  const StepMaker make_longest = [&](const StepChoice& choice) { return step.Make(choice, /*shorter=*/false); };
  const bool searches = step.has_shorter() && !memory.IsOpen();
  TEMPER_ASSIGN_OR_RETURN(auto programs,
                          FitWithin(memory, choices, searches ? make_longest : make_all, step.spec().threads,
                                    &compiled.memory, searches ? make_all : nullptr));
  compiled.programs = ProgramSet(std::move(programs));
  return compiled;
}

std::vector<RunGraph> TrainAndEval(const Graph& train, const Graph& eval) {
  return {{ProgramName(ProgramKind::kTrain), &train, /*trains=*/true}, {ProgramName(ProgramKind::kEval), &eval}};
}

Result<CompiledPrograms> CompileGraphs(std::span<const RunGraph> graphs, const StepSpec& spec) {
  TEMPER_CHECK(!graphs.empty()) << "nothing to compile";
  for (const RunGraph& graph : graphs) TEMPER_CHECK(!graph.trains || graphs.front().trains) << graph.name << " trains";
  return graphs.front().trains ? CompileStep(graphs, spec) : CompileForward(graphs, spec);
}

Result<CompiledPrograms> CompileForwardWithin(const ProcessMemory& available, std::span<const RunGraph> graphs,
                                              StepSpec spec) {
  std::string because;
  TEMPER_ASSIGN_OR_RETURN(CompiledPrograms compiled, CompileGraphs(graphs, spec));
  const Program& as_asked = compiled.programs.first();
  if (const auto limits = LimitsOfMachine(as_asked, spec.memory, available)) {
    because = DescribeLimits(as_asked, available);
    spec.memory = *limits;
    auto within = CompileGraphs(graphs, spec);
    if (!within.ok()) return within.status().WithContext(because);
    compiled = *std::move(within);
    because += ": ";
  } else {
    TEMPER_RETURN_IF_ERROR(CheckRoom(as_asked, spec.memory, available));
  }
  if (!compiled.memory.text.empty()) LogInfo("memory      " + because + compiled.memory.ToString());
  return compiled;
}

}  // namespace temper
