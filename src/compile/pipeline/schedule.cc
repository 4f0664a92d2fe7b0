#include "compile/pipeline/schedule.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// One stage's forwards and backwards in the order of each, with `warmup` forwards before the first backward.
std::vector<PipelineTask> OneForOne(const std::vector<PipelineTask>& forwards,
                                    const std::vector<PipelineTask>& backwards, size_t warmup) {
  std::vector<PipelineTask> tasks(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warmup));
  for (size_t i = warmup; i < forwards.size(); ++i) {
    tasks.push_back(forwards[i]);
    tasks.push_back(backwards[i - warmup]);
  }
  tasks.insert(tasks.end(), backwards.end() - static_cast<std::ptrdiff_t>(warmup), backwards.end());
  return tasks;
}

std::vector<PipelineTask> TasksInOrder(Work work, int chunk, int micro_batches) {
  std::vector<PipelineTask> tasks;
  for (int m = 0; m < micro_batches; ++m) tasks.push_back({work, chunk, m});
  return tasks;
}

void FillOneForwardOneBackward(PipelineSchedule* s) {
  for (int stage = 0; stage < s->stages; ++stage) {
    const int warmup = std::min(s->stages - 1 - stage, s->micro_batches);
    s->tasks.push_back(OneForOne(TasksInOrder(Work::kForward, stage, s->micro_batches),
                                 TasksInOrder(Work::kBackward, stage, s->micro_batches), static_cast<size_t>(warmup)));
  }
}

void FillGpipe(PipelineSchedule* s) {
  for (int stage = 0; stage < s->stages; ++stage) {
    s->tasks.push_back(OneForOne(TasksInOrder(Work::kForward, stage, s->micro_batches),
                                 TasksInOrder(Work::kBackward, stage, s->micro_batches),
                                 static_cast<size_t>(s->micro_batches)));
  }
}

// Narayanan et al. 2021: micro-batches go in groups of as many as there are stages, a group through all chunks of a
// stage before the next.
void FillInterleaved(PipelineSchedule* s) {
  const int p = s->stages, v = s->chunks_per_stage, total = s->micro_batches * v;
  for (int stage = 0; stage < p; ++stage) {
    std::vector<PipelineTask> forwards, backwards;
    for (int k = 0; k < total; ++k) {
      const int turn = k % (p * v) / p, micro_batch = k / (p * v) * p + k % p;
      forwards.push_back({Work::kForward, turn * p + stage, micro_batch});
      backwards.push_back({Work::kBackward, (v - 1 - turn) * p + stage, micro_batch});
    }
    const int warmup = s->micro_batches == p ? total : std::min((p - stage - 1) * 2 + (v - 1) * p, total);
    s->tasks.push_back(OneForOne(forwards, backwards, static_cast<size_t>(warmup)));
  }
}

// ZB-H1 of Qi et al. 2024: 1F1B in which a stage delays the gradients of weights by as many micro-batches as there are
// stages before it. Later stages thus return their gradients sooner and use their idle time for the delayed work; no
// stage has more in flight than the first one in 1F1B.
void FillZeroBubble(PipelineSchedule* s) {
  for (int stage = 0; stage < s->stages; ++stage) {
    const int warmup = std::min(s->stages - 1 - stage, s->micro_batches);
    std::vector<PipelineTask>& tasks = s->tasks.emplace_back();
    int forward = 0, backward = 0, weights = 0;
    const auto add = [&](Work work, int* next) { tasks.push_back({work, stage, (*next)++}); };
    while (forward < warmup) add(Work::kForward, &forward);
    while (backward < s->micro_batches) {
      if (forward < s->micro_batches) add(Work::kForward, &forward);
      add(Work::kBackward, &backward);
      if (backward - weights > stage) add(Work::kWeights, &weights);
    }
    while (weights < s->micro_batches) add(Work::kWeights, &weights);
  }
}

double TimeOfTask(const PipelineTask& task, const PipelineSchedule& s, const WorkTimes& times) {
  switch (task.work) {
    case Work::kForward:
      return times.forward / s.chunks_per_stage;
    case Work::kBackward:
      return (times.backward + (s.splits_backward ? 0 : times.weights)) / s.chunks_per_stage;
    case Work::kWeights:
      return times.weights / s.chunks_per_stage;
  }
  return 0;
}

// Checks that each piece of work appears once, on its stage, and in the order of micro-batches.
Status CheckTasks(const PipelineSchedule& s) {
  if (static_cast<int>(s.tasks.size()) != s.stages) return Corrupt("pipeline schedule: stages without tasks");
  const int works = s.forward_only ? 1 : s.splits_backward ? 3 : 2;
  for (int stage = 0; stage < s.stages; ++stage) {
    std::vector<int> next(static_cast<size_t>(s.chunks() * 3), 0);
    const auto& tasks = s.tasks[static_cast<size_t>(stage)];
    for (const PipelineTask& t : tasks) {
      const auto wrong = [&](const char* what) {
        return Corrupt(fmt::format("pipeline schedule: stage {}: {} {}", stage, t.ToString(), what));
      };
      if (t.chunk < 0 || t.chunk >= s.chunks() || s.StageOf(t.chunk) != stage) return wrong("belongs to another stage");
      if (static_cast<int>(t.work) >= works) return wrong("is not work of this schedule");
      int& expected = next[static_cast<size_t>(t.chunk * 3) + static_cast<size_t>(t.work)];
      if (t.micro_batch != expected) return wrong("is duplicated or out of order");
      ++expected;
    }
    if (static_cast<int>(tasks.size()) != s.chunks_per_stage * s.micro_batches * works) {
      return Corrupt(fmt::format("pipeline schedule: stage {} has {} tasks of {}", stage, tasks.size(),
                                 s.chunks_per_stage * s.micro_batches * works));
    }
  }
  return OkStatus();
}

}  // namespace

std::string PipelineTask::ToString() const {
  return fmt::format("{}(chunk {}, micro-batch {})", "FBW"[static_cast<size_t>(work)], chunk, micro_batch);
}

Result<PipelineSchedule> MakePipelineSchedule(PipelineKind kind, int stages, int chunks_per_stage, int micro_batches) {
  PipelineSchedule s{.stages = stages, .chunks_per_stage = chunks_per_stage, .micro_batches = micro_batches};
  TEMPER_CHECK(stages >= 1 && chunks_per_stage >= 1 && micro_batches >= 1) << stages;
  TEMPER_CHECK(chunks_per_stage == 1 || kind == PipelineKind::kInterleaved) << ToString(kind) << " with chunks";
  switch (kind) {
    case PipelineKind::kOneForwardOneBackward:
      FillOneForwardOneBackward(&s);
      break;
    case PipelineKind::kInterleaved:
      if (micro_batches % stages != 0) {
        return InvalidArgument(fmt::format(
            "mesh.pp_schedule interleaved: {} micro-batches do not divide among {} stages; {} or {} do", micro_batches,
            stages, std::max(micro_batches / stages, 1) * stages, (micro_batches / stages + 1) * stages));
      }
      FillInterleaved(&s);
      break;
    case PipelineKind::kZeroBubble:
      s.splits_backward = true;
      FillZeroBubble(&s);
      break;
    case PipelineKind::kGpipe:
      FillGpipe(&s);
      break;
  }
  return s;
}

PipelineSchedule MakeForwardSchedule(int stages, int chunks_per_stage, int micro_batches) {
  PipelineSchedule s{
      .stages = stages, .chunks_per_stage = chunks_per_stage, .micro_batches = micro_batches, .forward_only = true};
  s.tasks.resize(static_cast<size_t>(stages));
  for (int m = 0; m < micro_batches; ++m) {
    for (int chunk = 0; chunk < s.chunks(); ++chunk) {
      s.tasks[static_cast<size_t>(s.StageOf(chunk))].push_back({Work::kForward, chunk, m});
    }
  }
  // Micro-batches in order, each chunk after the previous one: a stage's order is that of the lists.
  return s;
}

Result<SimulatedPipeline> SimulatePipeline(const PipelineSchedule& s, const WorkTimes& times) {
  TEMPER_RETURN_IF_ERROR(CheckTasks(s));
  const auto stages = static_cast<size_t>(s.stages);
  std::vector<double> end(static_cast<size_t>(s.chunks() * s.micro_batches * 3), -1);
  const auto end_of = [&](Work work, int chunk, int m) -> double& {
    return end[static_cast<size_t>((static_cast<int>(work) * s.chunks() + chunk) * s.micro_batches + m)];
  };
  // The time at which the inputs of a task are ready; -1: not known yet.
  const auto ready = [&](const PipelineTask& t) {
    const int m = t.micro_batch, last = s.chunks() - 1;
    if (t.work == Work::kForward) return t.chunk == 0 ? 0 : end_of(Work::kForward, t.chunk - 1, m);
    if (t.work == Work::kWeights) return end_of(Work::kBackward, t.chunk, m);
    const double own = end_of(Work::kForward, t.chunk, m);
    const double next = t.chunk == last ? 0 : end_of(Work::kBackward, t.chunk + 1, m);
    return own < 0 || next < 0 ? -1 : std::max(own, next);
  };
  struct Made {
    double end;
    PipelineTransfer transfer;
  };
  std::vector<Made> made;
  std::vector<size_t> next(stages, 0);
  std::vector<double> free(stages, 0);
  double busy = 0;
  SimulatedPipeline result;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t stage = 0; stage < stages; ++stage) {
      while (next[stage] < s.tasks[stage].size()) {
        const PipelineTask& t = s.tasks[stage][next[stage]];
        const double at = ready(t);
        if (at < 0) break;
        const double time = TimeOfTask(t, s, times);
        free[stage] = std::max(free[stage], at) + time;
        end_of(t.work, t.chunk, t.micro_batch) = free[stage];
        busy += time;
        ++next[stage];
        progress = true;
        if (t.work == Work::kForward && t.chunk + 1 < s.chunks()) {
          made.push_back({free[stage], {t.chunk, t.chunk + 1, t.micro_batch}});
        }
        if (t.work == Work::kBackward && t.chunk > 0) {
          made.push_back({free[stage], {t.chunk, t.chunk - 1, t.micro_batch}});
        }
      }
    }
  }
  for (size_t stage = 0; stage < stages; ++stage) {
    result.makespan = std::max(result.makespan, free[stage]);
    if (next[stage] == s.tasks[stage].size()) continue;
    return Corrupt(fmt::format("pipeline schedule: stage {} waits forever before {}", stage,
                               s.tasks[stage][next[stage]].ToString()));
  }
  // Stable: transfers of equal times stay in the order of a stage's tasks.
  std::stable_sort(made.begin(), made.end(), [](const Made& a, const Made& b) { return a.end < b.end; });
  for (const Made& m : made) result.transfers.push_back(m.transfer);
  if (result.makespan > 0) result.bubble = 1 - busy / (result.makespan * s.stages);
  return result;
}

}  // namespace temper
