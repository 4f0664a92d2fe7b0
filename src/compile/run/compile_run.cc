#include "compile/run/compile_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compile/run/run_frame.h"

namespace temper {
namespace {

// `asked` without limits, if that leaves nothing to choose.
std::optional<MemorySpec> Unlimited(MemorySpec asked) {
  asked.device = asked.host = kNoLimit;
  return asked.IsOpen() ? std::optional(std::move(asked)) : std::nullopt;
}

Bytes NeedOf(const Program& step) {
  return step.arena_bytes + step.host.bytes;
}

// Bytes of the copies that a run packs once: second layouts of frozen weights, and trained weights; nullopt: none.
std::optional<Bytes> PackedBytes(const Program& step) {
  std::optional<Bytes> bytes;
  for (const Buffer& b : step.buffers) {
    if (!b.type.packed()) continue;
    if (!bytes) bytes = Bytes{};
    if (b.role == Role::kCache || b.type.layout == ElementLayout::kRowPairs) *bytes += b.type.bytes();
  }
  return bytes;
}

// The search for one run, over the steps of its ranks. Ranks that share a machine's memory need to know each other's
// needs: each rank finds the same for all of them.
class RunSearch {
 public:
  RunSearch(const RankMemory& available, RunFrame frame, int ranks, MemorySpec asked)
      : available_(available),
        frame_(std::move(frame)),
        ranks_(ranks),
        unlimited_(Unlimited(asked)),
        as_asked_{.memory = std::move(asked)} {
    if (unlimited_) as_it_is_.memory = *unlimited_;
    if (!available.packs || frame_.on_gpu || frame_.dtype != DType::kBF16 || !unlimited_) return;
    MemorySpec on_device = as_asked_.memory;
    on_device.policy = TierPolicy::kDevice;
    for (const PackedOperands packing : {PackedOperands::kAll, PackedOperands::kInMicroBatch}) {
      packed_.push_back({.memory = on_device, .packing = packing});
    }
  }
  RunSearch(const RunSearch&) = delete;
  RunSearch& operator=(const RunSearch&) = delete;

  int stages() const { return frame_.facts.mesh.mesh.size(Axis::kPp); }
  int ranks_per_stage() const { return ranks_ / stages(); }

  // The runs of `ranks`.
  Result<std::vector<CompiledRun>> Compile(const std::vector<int>& ranks, const AskRates& ask) {
    std::optional<RunRates> rates;
    if (ask) {
      TEMPER_ASSIGN_OR_RETURN(rates, ask(DependOnRates(ranks)));
    }
    if (rates) UseRates(*rates, &as_asked_.memory);
    std::vector<CompiledRun> runs;
    for (const int rank : ranks) {
      TEMPER_ASSIGN_OR_RETURN(runs.emplace_back(), Run(rank));
    }
    return runs;
  }

 private:
  // The steps of ranks, all within the same memory.
  struct Way {
    MemorySpec memory;
    // Of operands; `base` has chosen the rest.
    PackedOperands packing = PackedOperands::kNone;
    std::map<int, Result<CompiledPrograms>> found;  // by rank
  };
  // What a machine leaves to a rank.
  struct Room {
    ProcessMemory share;
    std::optional<MemorySpec> limits;  // if its step does not fit there
  };

  int FirstOfStage(int rank) const { return rank / ranks_per_stage() * ranks_per_stage(); }

  Result<const PreparedStep*> Prepared(int rank) {
    auto at = prepared_.find(rank);
    if (at == prepared_.end()) {
      TEMPER_ASSIGN_OR_RETURN(PreparedStep step, frame_.Prepare(rank));
      at = prepared_.emplace(rank, std::move(step)).first;
    }
    return &at->second;
  }

  // The step of `rank`, found once. `base`: the way that is packed.
  Result<const CompiledPrograms*> Find(int rank, Way* way, Way* base = nullptr) {
    auto at = way->found.find(rank);
    if (at == way->found.end()) at = way->found.emplace(rank, Search(rank, way, base)).first;
    if (!at->second.ok()) return at->second.status();
    return &*at->second;
  }
  Result<CompiledPrograms> Search(int rank, Way* way, Way* base) {
    TEMPER_ASSIGN_OR_RETURN(const PreparedStep* step, Prepared(rank));
    TEMPER_ASSIGN_OR_RETURN(std::vector<StepChoice> choices, step->Choices(way->memory));
    if (base != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* plain, Find(rank, base));
      choices = {plain->memory.choice};
      choices.front().packing = way->packing;
    } else if (way->memory.IsLimited() && rank != FirstOfStage(rank)) {
      TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* first, Find(FirstOfStage(rank), way));
      choices = {first->memory.choice};
    }
    return FitStep(*step, way->memory, choices);
  }

  // The first way that may be chosen for `rank`: everything on the device if that fits there.
  Result<Way*> Plain(int rank) {
    if (!unlimited_) return &as_asked_;
    for (const int one : {rank, FirstOfStage(rank)}) {  // which chooses what all recompute
      TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* step, Find(one, &as_it_is_));
      if (step->programs.first().arena_bytes > as_asked_.memory.device) return &as_asked_;
    }
    return &as_it_is_;
  }

  // By the needs of the first rank of each stage, so that all ranks of a stage decide alike: shards may differ by a
  // row.
  Result<Room> RoomFor(int rank, Way* way, const MemorySpec& asked, Way* base = nullptr) {
    Room room{.share = {.host = available_.each, .gpu = available_.gpu, .stages = stages()}};
    if (frame_.on_gpu && !available_.gpu) return room;
    const int own = FirstOfStage(rank);
    if (!frame_.on_gpu) {  // each rank has its own GPU
      std::vector<Bytes> needs;
      for (int first = 0; first < ranks_; first += ranks_per_stage()) {
        TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* step, Find(first, way, base));
        needs.push_back(NeedOf(step->programs.first()));
      }
      room.share.host.bytes = SharesOfStages(available_, needs, ranks_)[static_cast<size_t>(own / ranks_per_stage())];
    }
    TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* step, Find(own, way, base));
    room.limits = LimitsOfMachine(step->programs.first(), asked, room.share);
    return room;
  }

  // A run that fits as it is depends on no rates, which take a second to measure.
  Result<bool> DependOnRates(const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      if (!unlimited_) return true;
      TEMPER_ASSIGN_OR_RETURN(Way* const plain, Plain(rank));
      if (plain == &as_asked_) return true;
      TEMPER_ASSIGN_OR_RETURN(const Room room, RoomFor(rank, plain, as_asked_.memory));
      if (room.limits) return true;
    }
    return false;
  }

  Result<CompiledRun> Run(int rank) {
    TEMPER_ASSIGN_OR_RETURN(Way* const plain, Plain(rank));
    TEMPER_ASSIGN_OR_RETURN(const Room room, RoomFor(rank, plain, as_asked_.memory));
    TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* const step, Find(rank, plain));
    CompiledRun run;
    if (room.limits) {
      TEMPER_ASSIGN_OR_RETURN(run, Within(rank, room, plain));
      run.hashes_without_limits = HashesOf(step->programs);
    } else {
      TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* const packed, FindPacked(rank, plain));
      if (packed != nullptr) {
        TEMPER_ASSIGN_OR_RETURN(run, Packed(rank, *packed, *step));
        run.hashes_without_limits = HashesOf(step->programs);
      } else {
        TEMPER_ASSIGN_OR_RETURN(run, frame_.Finished(rank, *step, as_asked_.memory));
      }
      if (!frame_.on_gpu) run.room = CheckRoom(step->programs.first(), as_asked_.memory, room.share);
    }
    if (run.memory.choice.casts && as_asked_.memory.matrices == TrainedMatrices::kCast) {
      TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* const stored, Find(rank, &stored_));
      run.hashes_without_limits = HashesOf(stored->programs);
    }
    return run;
  }

  Result<CompiledRun> Within(int rank, const Room& room, Way* plain) {
    TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* const own, Find(rank, plain));
    const std::string because = DescribeLimits(own->programs.first(), room.share);
    Way limited{.memory = *room.limits};
    limited.memory.disk = true;  // in the output folder, unless another one is given
    const auto found = Find(rank, &limited);
    if (!found.ok()) return found.status().WithContext(because);
    TEMPER_ASSIGN_OR_RETURN(CompiledRun run, frame_.Finished(rank, **found, limited.memory));
    run.limited_because = because;
    return run;
  }

  // `plain`, packed; with what was considered for that.
  Result<CompiledRun> Packed(int rank, CompiledPrograms packed, const CompiledPrograms& plain) {
    const Program& step = packed.programs.first();
    const StepChoice choice = packed.memory.choice;
    packed.memory = plain.memory;
    packed.memory.choice = choice;
    if (!packed.memory.options.empty()) packed.memory.options.front().device = step.arena_bytes;
    TEMPER_ASSIGN_OR_RETURN(CompiledRun run, frame_.Finished(rank, std::move(packed), as_asked_.memory));
    run.packed = PackedBytes(run.train());
    return run;
  }

  // The step of `rank` with as many operands packed as fit without another choice; nullptr if there are none.
  Result<const CompiledPrograms*> FindPacked(int rank, Way* plain) {
    for (Way& way : packed_) {
      // The machine's memory limits it, whatever the options say.
      const Result<Room> room = RoomFor(rank, &way, MemorySpec(), plain);
      const Result<const CompiledPrograms*> step = room.ok() ? Find(rank, &way, plain) : room.status();
      if (!step.ok() && step.status().code() != StatusCode::kOutOfMemory) return step.status();
      if (!step.ok() || room->limits) continue;
      TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms* const unpacked, Find(rank, plain));
      const bool same = ProgramHash((*step)->programs.first()) == ProgramHash(unpacked->programs.first());
      return same ? nullptr : *step;
    }
    return nullptr;
  }

  const RankMemory& available_;
  const RunFrame frame_;
  const int ranks_;
  const std::optional<MemorySpec> unlimited_;  // what is asked for, but for limits
  std::map<int, PreparedStep> prepared_;       // by rank
  Way as_it_is_, as_asked_;                    // by the settings without limits; by the settings
  std::vector<Way> packed_;                    // what to try to pack, most first
  Way stored_;                                 // for the hash of a run that is asked to cast its weights
};

// Why rows that could be shorter are not.
constexpr char kOneLength[] = "with Programs of shorter rows the run does not fit into its memory";

// `ranks_of`: the ranks wanted of a run with so many stages.
Result<std::vector<CompiledRun>> CompileFor(const RankMemory& available, const Model& model, const RunConfig& config,
                                            int ranks, const KeptDecisions& kept, const MemorySpec& asked,
                                            const AskRates& ask,
                                            const std::function<std::vector<int>(int stages)>& ranks_of) {
  const auto compile = [&](bool shortens, bool* has_shorter) -> Result<std::vector<CompiledRun>> {
    auto frame = RunFrame::Of(model, config, ranks, kept,
                              shortens ? RunFrame::Graphs::kAllLengths : RunFrame::Graphs::kOneLength);
    if (!frame.ok() && ask) TEMPER_RETURN_IF_ERROR(ask(frame.status()).status());
    TEMPER_RETURN_IF_ERROR(frame.status());
    *has_shorter = !frame->facts.lengths.eval.empty();
    RunSearch search(available, *std::move(frame), ranks, asked);
    return search.Compile(ranks_of(search.stages()), ask);
  };
  bool has_shorter = false;
  Result<std::vector<CompiledRun>> runs = compile(/*shortens=*/!asked.quick, &has_shorter);
  if (!has_shorter || runs.ok() || runs.status().code() != StatusCode::kOutOfMemory) return runs;
  // Only some of several ranks may lack memory, and all of them have to compile alike.
  if (ranks > 1) {
    return OutOfMemory(runs.status().message() +
                       ". Programs of shorter rows take memory, too: pad_to_max_seq_len: true leaves them out");
  }
  // One length may still fit, or its message is the one that helps.
  runs = compile(/*shortens=*/false, &has_shorter);
  if (!runs.ok()) return runs;
  for (CompiledRun& run : *runs) run.lengths.why_not = kOneLength;
  return runs;
}

Result<CompiledRun> CompileFrame(RunFrame frame, int rank, const MemorySpec& memory) {
  frame.spec.mesh.rank = rank;
  frame.spec.memory = memory;
  TEMPER_ASSIGN_OR_RETURN(CompiledPrograms compiled, CompileGraphs(frame.RunGraphs(), frame.spec));
  return frame.Finished(rank, std::move(compiled), frame.spec.memory);
}

}  // namespace

Result<CompiledRun> CompileRun(const Model& model, const RunConfig& config, int ranks, int rank,
                               const KeptDecisions& kept, const MemorySpec* memory) {
  const MemorySpec asked = memory != nullptr ? *memory : MemorySpecOf(config);
  const auto lengths = asked.quick ? RunFrame::Graphs::kOneLength : RunFrame::Graphs::kAllLengths;
  TEMPER_ASSIGN_OR_RETURN(RunFrame frame, RunFrame::Of(model, config, ranks, kept, lengths));
  return CompileFrame(std::move(frame), rank, asked);
}

Result<CompiledRun> CompileTrainProgram(const Model& model, const RunConfig& config, int ranks, int rank,
                                        const MemorySpec& memory) {
  TEMPER_ASSIGN_OR_RETURN(RunFrame frame, RunFrame::Of(model, config, ranks, {}, RunFrame::Graphs::kTrainingAlone));
  return CompileFrame(std::move(frame), rank, memory);
}

Result<std::vector<CompiledRun>> CompileStages(int ranks, const std::function<Result<CompiledRun>(int rank)>& compile) {
  std::vector<CompiledRun> runs;
  TEMPER_ASSIGN_OR_RETURN(runs.emplace_back(), compile(0));
  const int stages = runs[0].mesh.mesh.size(Axis::kPp);
  for (int stage = 1; stage < stages; ++stage) {
    TEMPER_ASSIGN_OR_RETURN(runs.emplace_back(), compile(stage * (ranks / stages)));
  }
  return runs;
}

Result<CompiledRun> CompileWithin(const RankMemory& available, const Model& model, const RunConfig& config, int ranks,
                                  int rank, const KeptDecisions& kept, const AskRates& ask) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<CompiledRun> runs,
                          CompileFor(available, model, config, ranks, kept, MemorySpecOf(config), ask,
                                     [rank](int) { return std::vector<int>{rank}; }));
  return std::move(runs.front());
}

Result<std::vector<CompiledRun>> CompileStagesWithin(const RankMemory& available, const Model& model,
                                                     const RunConfig& config, int ranks, const MemorySpec& asked,
                                                     const AskRates& ask) {
  return CompileFor(available, model, config, ranks, {}, asked, ask, [ranks](int stages) {
    std::vector<int> firsts;
    for (int stage = 0; stage < stages; ++stage) firsts.push_back(stage * (ranks / stages));
    return firsts;
  });
}

}  // namespace temper
