// temper train: the whole of a run, from the command line to the finished adapter or model.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm_peak.h"
#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/training_state.h"
#include "cli/commands.h"
#include "cli/compiled_run.h"
#include "cli/finished_run.h"
#include "cli/machine.h"
#include "cli/output_folder.h"
#include "cli/resume.h"
#include "cli/run_data.h"
#include "cli/run_record.h"
#include "cli/run_saver.h"
#include "cli/train_setup.h"
#include "model/initialize.h"
#include "train/loop.h"
#include "train/run_options.h"

namespace temper {
namespace {

constexpr char kUsage[] =
    "usage: temper train [RUN.yaml] --model FOLDER --data FILE --output_dir FOLDER [--option value ...]\n\n"
    "Fine-tunes a model. Every key of the YAML file is an option of the command line, which wins.\n";

constexpr size_t kTraceEvents = 1 << 20;  // about 70 MB: some hundred steps of a large model

// Everything a run owns, in the order it is made; TrainCommand fills it step by step.
struct Run {
  TrainSetup setup;
  CompiledRun compiled;
  RunData data;
  std::optional<RunData> eval_data;
  DataSplit split;
  std::unique_ptr<KernelTable> kernels;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Executor> train, eval;

  const RunConfig& config() const { return setup.run.config; }
  PartView Buffer(const std::string& name) const {
    const int i = compiled.train().FindBuffer(name);
    return i < 0 ? PartView() : train->BufferPart(i);
  }
  BufferLookup Lookup() const {
    return [this](const std::string& name) { return Buffer(name); };
  }
  PackingOptions Packing() const {
    return {.max_seq_len = *config().data.max_seq_len, .packing = config().data.packing};
  }
  bool evaluates() const { return eval_data || !split.evaluation.empty(); }
};

Status LoadData(Run& run) {
  const RunConfig& c = run.config();
  DataRequest request{.files = {c.data.data},
                      .max_seq_len = *c.data.max_seq_len,
                      .train_on_prompt = c.data.train_on_prompt,
                      .skip_bad_rows = c.data.skip_bad_rows,
                      .template_date = c.data.template_date,
                      .threads = static_cast<int>(*c.machine.threads)};
  TEMPER_ASSIGN_OR_RETURN(run.data, LoadRunData(PosixEnv(), run.setup.model, request));
  DescribeData(run.data.dataset);
  if (!c.data.eval_data.empty()) {
    request.files = {c.data.eval_data};
    TEMPER_ASSIGN_OR_RETURN(run.eval_data, LoadRunData(PosixEnv(), run.setup.model, request));
    DescribeData(run.eval_data->dataset);
  }
  TEMPER_ASSIGN_OR_RETURN(run.split, SplitForEvaluation(run.data.dataset.store.size(), c.data.eval_fraction,
                                                        static_cast<uint64_t>(c.machine.seed)));
  return OkStatus();
}

Status Prepare(Run& run) {
  const RunConfig& c = run.config();
  run.kernels = MakeCpuKernels({.threads = static_cast<int>(*c.machine.threads)});
  TEMPER_ASSIGN_OR_RETURN(run.arena, Arena::Create(run.compiled.train().arena_bytes));
  TEMPER_ASSIGN_OR_RETURN(run.train, Executor::Create(run.compiled.train(), *run.arena, *run.kernels));
  TEMPER_ASSIGN_OR_RETURN(run.eval, Executor::Create(run.compiled.eval(), *run.arena, *run.kernels));
  const auto seed = static_cast<uint64_t>(c.machine.seed);
  if (c.model.from_scratch) {
    InitializeModel(run.setup.model.model(), seed, run.Lookup());
    return OkStatus();
  }
  if (!run.compiled.targets.empty() && !run.setup.model.adapter()) {
    InitializeLora(run.compiled.targets, seed, run.Lookup());
  }
  return run.setup.model.Load(run.Lookup());
}

// What a checkpoint of this run holds besides its state.
Result<CheckpointContents> ContentsOf(const Run& run, int64_t total_steps) {
  const RunConfig& c = run.config();
  CheckpointContents contents;
  contents.kind = run.compiled.targets.empty() ? CheckpointKind::kFull : CheckpointKind::kLora;
  contents.state.total_steps = total_steps;
  contents.state.data_fingerprint = fmt::format("{:016x}", run.data.dataset.store.Fingerprint());
  contents.identity = IdentityOf(run.compiled.train(), run.kernels->name());
  contents.tensors = TrainingState(run.compiled.train(), run.Lookup());
  contents.texts.push_back({kRunConfigFile, SavedConfig(c)});
  if (contents.kind == CheckpointKind::kLora) {
    contents.texts.push_back(
        {kAdapterConfigFile, FormatAdapterConfig(AdapterConfigOf(c, run.compiled.targets, run.setup.model.folder()))});
    return contents;
  }
  TEMPER_ASSIGN_OR_RETURN(const auto names, CompanionFiles(PosixEnv(), run.setup.model.folder()));
  for (const std::string& name : names) contents.copies.push_back({name, JoinPath(run.setup.model.folder(), name)});
  return contents;
}

void PrintPlan(const Run& run) {
  const MemoryByClass& m = run.compiled.train().peak;
  LogInfo(fmt::format(
      "plan        arena {}: weights {}, adapters {}, gradients {}, optimizer {}, activations {}, workspace {}",
      ToString(run.compiled.train().arena_bytes), ToString(m.weights), ToString(m.adapters), ToString(m.gradients),
      ToString(m.optimizer), ToString(m.activations), ToString(m.workspace)));
}

Result<int> Train(Run& run) {
  const RunConfig& c = run.config();
  const std::string& out = c.output.output_dir;
  TEMPER_ASSIGN_OR_RETURN(const std::optional<std::string> resume_from, ClaimOutputFolder(PosixEnv(), c));
  LogInfo(fmt::format("model       {} ({}), {:.2f} M parameters, {:.3f} M trained, {} on {} threads", c.model.model,
                      run.setup.model.model().facts().architecture, static_cast<double>(run.compiled.parameters) * 1e-6,
                      static_cast<double>(run.compiled.trainable_parameters) * 1e-6, ToString(ComputeDType(c)),
                      *c.machine.threads));
  TEMPER_RETURN_IF_ERROR(LoadData(run));
  std::vector<int32_t> samples = run.split.train;
  const PackingOptions packing = run.Packing();
  const Packing rows(run.data.dataset.store, samples, packing);
  TEMPER_ASSIGN_OR_RETURN(
      const StepCount steps,
      StepsOf(rows.rows(), c.batch.per_device_train_batch_size * c.batch.gradient_accumulation_steps,
              c.length.num_train_epochs, c.length.max_steps.value_or(-1)));
  LogInfo(fmt::format("rows        {} rows of {} tokens, {:.1f} % filled; {} steps per epoch, {} steps in all",
                      rows.rows(), packing.max_seq_len, 100 * rows.efficiency(), steps.per_epoch, steps.total));
  if (const auto warning = ShortRunWarning(c, steps.total)) LogWarning(*warning);
  TEMPER_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(c, steps.total));
  PrintPlan(run);
  TEMPER_RETURN_IF_ERROR(Prepare(run));

  TEMPER_ASSIGN_OR_RETURN(CheckpointContents contents, ContentsOf(run, steps.total));
  TEMPER_ASSIGN_OR_RETURN(const Bytes checkpoint_bytes, CheckpointBytes(PosixEnv(), contents));
  TEMPER_RETURN_IF_ERROR(PrepareOutputFolder(PosixEnv(), out, checkpoint_bytes));
  TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), JoinPath(out, kRunConfigFile), SavedConfig(c)));

  Trainer trainer(*run.train, run.data.dataset.store, samples, packing,
                  {.micro_batches = c.batch.gradient_accumulation_steps,
                   .rows_per_micro_batch = c.batch.per_device_train_batch_size,
                   .schedule = schedule,
                   .beta1 = c.optimizer.adam_beta1,
                   .beta2 = c.optimizer.adam_beta2,
                   .seed = static_cast<uint64_t>(c.machine.seed)});
  RunProgress progress;
  if (resume_from) {
    TEMPER_ASSIGN_OR_RETURN(progress, Resume(*resume_from, c, contents, run.compiled.train(), run.Lookup()));
    TEMPER_RETURN_IF_ERROR(trainer.Restore(progress.step, progress.sampler));
    LogInfo(fmt::format("resume      from {} at step {}", *resume_from, progress.step));
  }
  const std::string metrics_path = JoinPath(out, "metrics.jsonl");
  TEMPER_RETURN_IF_ERROR(TruncateMetrics(PosixEnv(), metrics_path, progress.step));
  TEMPER_ASSIGN_OR_RETURN(const auto metrics, MetricsLog::Open(PosixEnv(), metrics_path));
  std::unique_ptr<TensorBoardWriter> tensorboard;
  if (c.output.tensorboard) {
    const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    TEMPER_ASSIGN_OR_RETURN(
        tensorboard,
        TensorBoardWriter::Create(PosixEnv(), out, now, resume_from ? std::optional(progress.step) : std::nullopt));
  }
  std::optional<Evaluator> evaluator;
  if (run.evaluates()) {
    const RunData& from = run.eval_data ? *run.eval_data : run.data;
    std::vector<int32_t> held_out = run.split.evaluation;
    if (run.eval_data) {
      held_out.resize(static_cast<size_t>(from.dataset.store.size()));
      for (size_t i = 0; i < held_out.size(); ++i) held_out[i] = static_cast<int32_t>(i);
    }
    PackingOptions in_order = packing;
    in_order.shuffle = false;
    evaluator.emplace(*run.eval, from.dataset.store, held_out, in_order);
  }
  std::optional<Trace> trace;
  if (c.output.profile) trace.emplace(kTraceEvents);
  RunSaver saver(PosixEnv(), {.output_dir = out, .save_total_limit = c.output.save_total_limit}, std::move(contents));
  ProgressDisplay display(StderrIsRich(), LocaleIsUtf8());
  InstallStopHandler();
  TrainingLoop loop(
      {.config = c,
       .trainer = trainer,
       .evaluator = evaluator ? &*evaluator : nullptr,
       .saver = saver,
       .metrics = *metrics,
       .tensorboard = tensorboard.get(),
       .display = display,
       .trace = trace ? &*trace : nullptr,
       .total_steps = steps.total,
       .device_peak = run.compiled.train().arena_bytes,
       .model_flops = [&](const StepReport& r) { return run.compiled.ModelFlops(r.tokens, r.attended_pairs); },
       .peak_flops_per_second = MeasureGemmPeak(ComputeDType(c), static_cast<int>(*c.machine.threads), DetectIsa())},
      progress);
  TEMPER_ASSIGN_OR_RETURN(const LoopEnd end, loop.Run());
  if (trace) TEMPER_RETURN_IF_ERROR(trace->WriteChrome(PosixEnv(), JoinPath(out, "trace.json")));
  if (end == LoopEnd::kStopped) {
    LogInfo(fmt::format("stopped at step {} of {}, checkpoint saved; go on with the same command and --resume",
                        loop.progress().step, steps.total));
    return StopSignal() == 2 ? kExitStoppedByInt : kExitStoppedByTerm;
  }
  return FinishRun(PosixEnv(), run.setup.model, c, run.compiled, loop.progress());
}

}  // namespace

Result<int> TrainCommand(const Arguments& arguments) {
  TEMPER_ASSIGN_OR_RETURN(auto setup, SetUpTraining(arguments, Purpose::kTrain, kUsage));
  if (!setup) return 0;
  TEMPER_ASSIGN_OR_RETURN(CompiledRun compiled, CompileRun(setup->model.model(), setup->run.config));
  Run run{.setup = std::move(*setup), .compiled = std::move(compiled)};
  for (const auto& [name, note] : run.setup.run.notes) LogInfo(fmt::format("{:<11} {}", name, note));
  return Train(run);
}

}  // namespace temper
