// temper train: a whole run, from the command line to the finished adapter or model.
#include <fmt/core.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <numeric>

#include "base/log.h"
#include "base/quantity.h"
#include "base/stop_signal.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/training_state.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/train_setup.h"
#include "config/run_options.h"
#include "data/tokenizer/transformers_files.h"
#include "model/initialize.h"
#include "plan/compiled_run.h"
#include "run/data.h"
#include "run/engine.h"
#include "run/finished_run.h"
#include "run/machine.h"
#include "run/machine_report.h"
#include "run/products_of_run.h"
#include "run/rates_of_run.h"
#include "run/run_record.h"
#include "run/saver.h"
#include "run/scalar_kernels.h"
#include "train/loop.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr char kUsage[] =
    "usage: temper train [RUN.yaml] --model FOLDER --data FILE --output_dir FOLDER [--option value ...]\n\n"
    "Fine-tunes a model. Every key of the YAML file is also an option; the command line overrides the file.\n";

constexpr double kNotable = 0.8;          // of the calibrated peak: clocks and short measurements vary less
constexpr size_t kTraceEvents = 1 << 20;  // about 70 MB: some hundred steps of a large model

// Everything that a run owns, in order of creation; Train fills it step by step.
struct Run {
  TrainSetup setup;
  RankMemory available;
  std::optional<RatesOfRun> rates;
  CompiledRun compiled;
  RunData data;
  std::optional<RunData> eval_data;
  DataSplit split;
  RunEngine engine;
  std::optional<int64_t> asked_accumulation;  // SavedBatch

  const RunConfig& config() const { return setup.run.config; }
  PackingOptions Packing() const {
    return {.max_seq_len = *config().data.max_seq_len,
            .packing = config().data.packing,
            .passes = PassesOf(data.dataset, config().data.data)};
  }
  int64_t RowsPerStep() const {
    const RunConfig::Batch& batch = config().batch;
    return batch.per_device_train_batch_size * batch.gradient_accumulation_steps * compiled.data_ranks();
  }
  // The evaluation data, or the training data of which a part is held out.
  const RunData& held_out() const { return eval_data ? *eval_data : data; }
  Peers peers() const {
    const MeshSpec& mesh = compiled.mesh;
    return {.communicator = setup.ranks.communicator(),
            .data_ranks = compiled.data_ranks(),
            .data_rank = compiled.data_rank(),
            .context_ranks = mesh.mesh.size(Axis::kCp),
            .context_rank = mesh.mesh.Coordinate(mesh.rank, Axis::kCp),
            .stages = mesh.mesh.size(Axis::kPp)};
  }
  bool evaluates() const { return eval_data || !split.evaluation.empty(); }
};

Status LoadData(Run& run) {
  const RunConfig& c = run.config();
  const Ranks& ranks = run.setup.ranks;
  DataRequest request = TrainingData(c);
  if (request.cache.empty()) request.cache = c.output.output_dir;
  const auto describe = [&](const Dataset& dataset, const DataSources& sources) {
    DescribeData(dataset, sources, *c.data.max_seq_len, run.setup.model.model().facts().max_positions);
  };
  TEMPER_ASSIGN_OR_RETURN(run.data, LoadRunData(PosixEnv(), run.setup.model, request, ranks));
  if (ranks.first()) describe(run.data.dataset, c.data.data);
  if (!c.data.eval_data.empty()) {
    request.sources = c.data.eval_data;
    request.option = "eval_data";
    TEMPER_ASSIGN_OR_RETURN(run.eval_data, LoadRunData(PosixEnv(), run.setup.model, request, ranks));
    if (ranks.first()) describe(run.eval_data->dataset, c.data.eval_data);
  }
  const bool weighted = run.data.dataset.store.weighted() || (run.eval_data && run.eval_data->dataset.store.weighted());
  if (weighted && !c.data.weighted) {
    return InvalidArgument("the data had no weights when the run was compiled, but has some now: start the run again");
  }
  TEMPER_ASSIGN_OR_RETURN(run.split, SplitForEvaluation(run.data.dataset.store.size(), c.data.eval_fraction,
                                                        static_cast<uint64_t>(c.machine.seed)));
  return OkStatus();
}

// "229 GFLOP/s", "3.41 GFLOP/s", "790 TFLOP/s".
std::string PeakText(double flops_per_second) {
  const bool large = flops_per_second >= 1e13;
  return fmt::format("{:.3g} {}", flops_per_second * (large ? 1e-12 : 1e-9), large ? "TFLOP/s" : "GFLOP/s");
}

// For values that do not fit in memory. By default with the checkpoints, which have a similar size.
std::string SpillFolder(const RunConfig& config) {
  return config.memory.disk.empty() ? config.output.output_dir : config.memory.disk;
}

RunOnMachine OnMachine(const Run& run) {
  const RunConfig& c = run.config();
  return {.ranks = run.setup.ranks.of_machine().ranks,
          .threads = static_cast<int>(*c.machine.threads),
          .dtype = ComputeDType(c),
          .gpu = run.engine.gpu.get(),
          .folder = SpillFolder(c)};
}

// What 100 % MFU is, and whether it is less than when the machine was calibrated.
void LogPeak(const Run& run) {
  const double peak = run.engine.peak;
  if (peak <= 0) return;
  const RunOnMachine on = OnMachine(run);
  const int ranks = run.setup.ranks.size();
  LogInfo(fmt::format("MFU         100 % is {}{}, the peak of products in {}, measured just now",
                      ranks > 1 ? fmt::format("{} x ", ranks) : "", PeakText(peak), ToString(on.dtype)));
  const std::optional<std::string> text = CalibrationOf(PosixEnv(), on);
  if (!text) return;
  const Result<Cluster> calibrated = ParseCluster(*text, kRatesFile);
  if (!calibrated.ok()) return;
  const double then = calibrated->ShareOf(on.ranks).peak(on.dtype);
  if (peak >= kNotable * then) return;
  LogWarning(
      fmt::format("the machine gives {:.0f} % of the {} that it gave when it was calibrated ({}): other work may "
                  "run on it, or its clock is lower",
                  100 * peak / then, PeakText(then), calibrated->date));
}

// Fills in weights, adapters and states for the first step; returns the run's progress.
Result<RunProgress> FillMemory(const CheckpointContents& contents, Run& run) {
  const auto seed = static_cast<uint64_t>(run.config().machine.seed);
  const std::optional<ResumePoint>& resume = run.setup.resume;
  HostWindow window;
  const auto fill = [&](const std::string& name, const std::function<void(const PartView&)>& write) {
    const DevicePart to = run.engine.Buffer(name);
    if (!to.exists()) return OkStatus();
    return window.Fill(to, [&](const PartView& piece) {
      write(piece);
      return OkStatus();
    });
  };
  if (run.setup.reads_weights()) {
    // Each machine may have its own copy of the files.
    const RankOfMachine here = run.setup.ranks.of_machine();
    TEMPER_RETURN_IF_ERROR(run.setup.model.Load(run.engine.Lookup(), here.rank, here.ranks));
    if (!run.compiled.targets.empty() && !run.setup.model.adapter() && !resume) {
      TEMPER_RETURN_IF_ERROR(InitializeLora(run.compiled.targets, seed, fill));
    }
  } else if (!resume) {
    TEMPER_RETURN_IF_ERROR(InitializeModel(run.setup.model.model(), seed, fill));
  }
  if (!resume) return RunProgress();
  TransferProgress progress("resume");
  TEMPER_ASSIGN_OR_RETURN(
      RunProgress at, resume->Restore(contents.identity, run.config(), contents.state.eval_fingerprint, run.compiled,
                                      run.engine.Lookup(), progress.Callback()));
  LogInfo(fmt::format("resume      from {} at step {}", resume->path(), at.step));
  return at;
}

// The contents of this run's checkpoints, except its progress. REQUIRES: Reserve was OK.
Result<CheckpointContents> ContentsOf(const Run& run) {
  const RunConfig& c = run.config();
  CheckpointContents contents;
  contents.kind = run.compiled.targets.empty() ? CheckpointKind::kFull : CheckpointKind::kLora;
  contents.optimizer = c.optimizer.rule->name;
  const Ranks& ranks = run.setup.ranks;
  TEMPER_ASSIGN_OR_RETURN(contents.identity,
                          IdentityOf(run.compiled, run.engine.kernels_name(), c.machine.device, ranks));
  if (!run.engine.products.by_maker.empty()) contents.identity.environment["timed_products"] = true;
  contents.tensors =
      TrainingState(run.compiled.train(), run.engine.Lookup(), run.compiled.stored, ranks.rank(), ranks.size());
  contents.texts.push_back({kRunConfigFile, SavedConfig(c)});
  if (run.setup.keeps_base()) {
    TEMPER_ASSIGN_OR_RETURN(std::string base, DescribeBase(run.setup.model.weights()));
    contents.texts.push_back({kBaseFile, std::move(base)});
  }
  if (!run.rates->text().empty()) contents.texts.push_back({kRatesFile, run.rates->text()});
  const ProductChoices& products = run.engine.products;
  if (!products.by_maker.empty()) contents.texts.push_back({kProductsFile, FormatProducts(products)});
  TEMPER_ASSIGN_OR_RETURN(const auto of_template, run.setup.model.FilesOfTemplate());
  if (contents.kind == CheckpointKind::kLora) {
    contents.texts.push_back(
        {kAdapterConfigFile, FormatLoraConfig(SavedLora(c.lora, run.compiled.targets, run.setup.model))});
  } else {
    TEMPER_ASSIGN_OR_RETURN(const auto names, CompanionFiles(PosixEnv(), run.setup.model.folder()));
    for (const std::string& name : names) {
      if (!of_template.contains(name)) contents.copies.push_back({name, JoinPath(run.setup.model.folder(), name)});
    }
  }
  for (const auto& [name, text] : of_template) contents.texts.push_back({name, text});
  return contents;
}

// The disk space that the run needs: a checkpoint, and its weights or adapter at the top of the output folder. All
// ranks call this at the same place.
Result<Bytes> DiskBytes(const CheckpointContents& contents, const Run& run) {
  TEMPER_ASSIGN_OR_RETURN(Bytes sum, CheckpointBytes(PosixEnv(), contents));
  for (const CheckpointTensor& t : contents.tensors) {
    if (IsValueName(t.name)) sum += t.whole().bytes();
  }
  const bool whole_folder = contents.kind == CheckpointKind::kFull && run.setup.keeps_base();
  if (whole_folder) sum += run.setup.model.BytesOfOthers();
  // Ranks of one stage have the same tensors.
  const Mesh& mesh = run.compiled.mesh.mesh;
  const int stages = mesh.size(Axis::kPp);
  if (stages == 1 || run.setup.ranks.alone()) return sum;
  double all = run.setup.ranks.rank() % (mesh.ranks() / stages) == 0 ? static_cast<double>(sum.v) : 0;
  TEMPER_RETURN_IF_ERROR(run.setup.ranks.communicator()->AllReduceSum({&all, 1}));
  return Bytes{static_cast<int64_t>(all)};
}

// Logs the folders that the run uses in every step.
void LogDisk(const Run& run) {
  if (!run.engine.far.mapped.empty()) {
    LogInfo(fmt::format("memory      frozen weights are read from {} in every step", run.setup.model.folder()));
  }
  const std::vector<Buffer>& buffers = run.compiled.train().buffers;
  const bool spills = std::any_of(buffers.begin(), buffers.end(),
                                  [](const Buffer& b) { return b.tier() == Tier::kDisk && !IsFrozen(b); });
  if (spills) LogInfo(fmt::format("memory      trained values are kept in {}", SpillFolder(run.config())));
}

void Announce(const Run& run) {
  const RunConfig& c = run.config();
  LogInfo(fmt::format("model       {} ({}), {:.2f} M parameters, {:.2f} M trained, {} on {}", c.model.model,
                      run.setup.model.model().facts().architecture, static_cast<double>(run.compiled.parameters) * 1e-6,
                      static_cast<double>(run.compiled.trainable_parameters) * 1e-6, ToString(ComputeDType(c)),
                      c.machine.device == DeviceChoice::kGpu ? "a GPU" : Counted(*c.machine.threads, "thread")));
  const std::string tokenizer = FilesForTransformers(PosixEnv(), run.setup.model.folder()).why;
  if (!tokenizer.empty()) LogInfo("tokenizer   " + tokenizer);
  if (!run.setup.ranks.alone()) {
    LogInfo(fmt::format("mesh        {}: {}; {} with rows of {} own", run.compiled.mesh.mesh.ToString(),
                        run.setup.ranks.Hosts(), run.compiled.data_ranks(),
                        run.compiled.data_ranks() == 1 ? "its" : "their"));
    if (!run.compiled.mesh_note.empty()) LogInfo("mesh        " + run.compiled.mesh_note);
    for (const Decision& d : run.compiled.decisions) {
      LogInfo(fmt::format("decision    {}: {}, not {}: {}", d.what, d.chosen, d.rejected, d.reason));
    }
  }
  if (const auto& pipeline = run.compiled.pipeline) {
    LogInfo("pipeline    " + pipeline->ToString());
    if (pipeline->micro_batches < pipeline->stages) {
      LogWarning(fmt::format(
          "a step has {} for {} stages: most stages are idle most of the time; raise "
          "gradient_accumulation_steps to {} or more",
          Counted(pipeline->micro_batches, "micro-batch", "micro-batches"), pipeline->stages, 4 * pipeline->stages));
    }
  }
  if (const std::string text = run.compiled.MemoryText(); !text.empty()) {
    LogInfo("memory      " + text);
  }
  for (const std::string& line : OptionLines(run.compiled.memory.options)) LogInfo("memory        " + line);
  if (!run.compiled.rates.empty()) LogInfo("rates       " + run.compiled.rates);
  RunConfig shown = c;
  const OptionSet options = RunOptions(shown);
  for (const auto& [name, note] : run.setup.run.notes) {
    LogInfo(fmt::format("settings    {} {}: {}", name, ValueAsYaml(*options.Find(name)), note));
  }
  WarnOfScalarKernels(run.compiled, c.machine.device);
  const int64_t ranks = run.compiled.data_ranks();
  const int64_t rows = run.RowsPerStep();
  LogInfo(fmt::format("batch       {} of {} a step: {} x {}{}, {}", Counted(rows, "row"),
                      Counted(*c.data.max_seq_len, "token"), Counted(c.batch.per_device_train_batch_size, "row"),
                      Counted(c.batch.gradient_accumulation_steps, "micro-batch", "micro-batches"),
                      ranks > 1 ? " x " + Counted(ranks, "rank") : "", Counted(rows * *c.data.max_seq_len, "token")));
  const MemoryByClass& m = run.compiled.train().peak;
  LogInfo(fmt::format(
      "plan        arena {}: weights {}, adapters {}, gradients {}, optimizer {}, activations {}, workspace {}",
      ToString(run.compiled.train().arena_bytes), ToString(m.weights), ToString(m.adapters), ToString(m.gradients),
      ToString(m.optimizer), ToString(m.activations), ToString(m.workspace)));
}

Result<StepCount> CountSteps(Run& run) {
  const RunConfig& c = run.config();
  TEMPER_RETURN_IF_ERROR(CheckPasses(run.split.train, run.Packing().passes));
  Packing rows(run.data.dataset.store, run.split.train, run.Packing());
  StepsDone done;
  if (run.setup.resume) {
    const RunState& at = run.setup.resume->state();
    done = {at.step, {at.sampler.seed, at.sampler.epoch, at.sampler.next_row}};
  }
  TEMPER_ASSIGN_OR_RETURN(const StepCount steps,
                          StepsOf(rows, static_cast<uint64_t>(c.machine.seed), run.RowsPerStep(),
                                  c.length.num_train_epochs, c.length.max_steps.value_or(-1), done));
  TEMPER_RETURN_IF_ERROR(ScheduleOf(c, steps.total).status());
  LogInfo(fmt::format("rows        {}{} of {} tokens, {:.1f} % filled; {} per epoch, {} in all; {} hold their order",
                      rows.rows_vary() ? "some " : "", Counted(rows.rows(), "row"), *c.data.max_seq_len,
                      100 * rows.efficiency(), Counted(steps.per_epoch, "step"), Counted(steps.total, "step"),
                      ToString(rows.memory())));
  if (const auto warning = ShortRunWarning(c, steps.total)) LogWarning(*warning);
  if (!run.setup.resume) return steps;
  rows.Pack(static_cast<uint64_t>(c.machine.seed), done.at.epoch);
  TEMPER_ASSIGN_OR_RETURN(const auto changes,
                          run.setup.resume->DescribeChanges({c, steps.total, run.RowsPerStep()}, rows.rows()));
  for (const std::string& line : changes) LogInfo("changed     " + line);
  return steps;
}

std::optional<Evaluator> MakeEvaluator(const Run& run) {
  if (!run.evaluates()) return std::nullopt;
  const Dataset& from = run.held_out().dataset;
  std::vector<int32_t> samples = run.split.evaluation;
  if (run.eval_data) {
    samples.resize(static_cast<size_t>(from.store.size()));
    std::iota(samples.begin(), samples.end(), 0);
  }
  PackingOptions in_order = run.Packing();
  in_order.shuffle = false;
  in_order.passes.clear();
  return std::make_optional<Evaluator>(
      *run.engine.eval, from.store, samples, in_order, [&from](int32_t sample) { return from.PlaceOf(sample); },
      run.peers());
}

// The files that the first rank writes beside the checkpoints.
struct RunRecords {
  std::unique_ptr<MetricsLog> metrics;
  std::unique_ptr<TensorBoardWriter> tensorboard;
};

std::vector<std::string> TokenFilesOf(const Run& run) {
  std::vector<std::string> used = {run.data.token_file};
  if (run.eval_data) used.push_back(run.eval_data->token_file);
  return used;
}

// But for the token file, the first change of the output folder.
Status OpenRecords(const RunProgress& at, Run& run, RunRecords* records) {
  const RunConfig& c = run.config();
  const std::string& out = c.output.output_dir;
  TEMPER_RETURN_IF_ERROR(run.setup.folder->Begin(at.step));
  TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), JoinPath(out, kRunConfigFile), SavedConfig(c)));
  const std::string metrics_path = JoinPath(out, kMetricsFile);
  TEMPER_RETURN_IF_ERROR(TruncateMetrics(PosixEnv(), metrics_path, at.step, at.eval_loss.has_value()));
  TEMPER_ASSIGN_OR_RETURN(records->metrics, MetricsLog::Open(PosixEnv(), metrics_path));
  if (!c.output.tensorboard) return OkStatus();
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  auto tensorboard =
      TensorBoardWriter::Create(PosixEnv(), out, now, run.setup.resume ? std::optional(at.step) : std::nullopt);
  if (tensorboard.ok()) {
    records->tensorboard = *std::move(tensorboard);
  } else {
    LogWarning(tensorboard.status().message() + "; the run goes on without TensorBoard's log");
  }
  return OkStatus();
}

std::optional<TiersRow> TiersOf(const Program& program) {
  if (program.host.bytes.v + program.disk.bytes.v == 0) return std::nullopt;
  return TiersRow{(program.host.bytes + TransferBuffers(program)).v, TrafficOfStep(program)};
}

// Trains from `at` to the end, or until a stop signal.
Result<int> TrainFrom(const RunProgress& at, const StepCount& steps, CheckpointContents contents, Run& run) {
  const RunConfig& c = run.config();
  const std::string& out = c.output.output_dir;
  const Dataset& dataset = run.data.dataset;
  TEMPER_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(c, steps.total));
  Trainer trainer(*run.engine.train, dataset.store, run.split.train, run.Packing(),
                  {.micro_batches = c.batch.gradient_accumulation_steps,
                   .rows_per_micro_batch = c.batch.per_device_train_batch_size,
                   .schedule = schedule,
                   .update = UpdateSpecOf(c.optimizer),
                   .seed = static_cast<uint64_t>(c.machine.seed),
                   .place = [&dataset](int32_t sample) { return dataset.PlaceOf(sample); },
                   .attention_flops = [&run](int64_t tokens) { return run.compiled.AttentionFlops(tokens); },
                   .peers = run.peers()});
  if (at.step > 0) TEMPER_RETURN_IF_ERROR(trainer.Restore(at.step, at.sampler));
  std::optional<Evaluator> evaluator = MakeEvaluator(run);
  std::optional<Trace> trace;
  if (c.output.profile) trace.emplace(kTraceEvents);
  if (!run.engine.gpu) run.engine.peak = CpuPeak(ComputeDType(c), static_cast<int>(*c.machine.threads));
  if (run.setup.ranks.first()) LogPeak(run);

  Utilisation utilisation(run.engine.kernel_time, run.engine.collective_time);
  const Ranks& ranks = run.setup.ranks;
  // A launcher of several hosts may send a signal because a rank has died: then no step will be finished.
  InstallStopHandler(/*tell_at_once=*/ranks.alone() || ranks.of_machine().launched);
  RunRecords records;
  TEMPER_RETURN_IF_ERROR(ranks.Agree(ranks.first() ? OpenRecords(at, run, &records) : OkStatus()));
  if (!ranks.alone()) {
    TEMPER_ASSIGN_OR_RETURN(contents.tensors, OwnParts(std::move(contents.tensors), *ranks.communicator()));
  }
  RunSaver saver(PosixEnv(),
                 {.output_dir = out,
                  .save_total_limit = c.output.save_total_limit,
                  .rank = ranks.rank(),
                  .ranks = ranks.size(),
                  .stream = run.engine.reading ? run.engine.reading.get() : &HostStream()},
                 std::move(contents), ranks, {run.compiled.data_ranks(), run.asked_accumulation});
  ProgressDisplay display(StderrIsRich(), LocaleIsUtf8(), /*silent=*/!run.setup.ranks.first());
  TrainingLoop loop({.config = c,
                     .trainer = trainer,
                     .evaluator = evaluator ? &*evaluator : nullptr,
                     .saver = saver,
                     .metrics = records.metrics.get(),
                     .tensorboard = records.tensorboard.get(),
                     .display = display,
                     .peers = run.peers(),
                     .utilisation = &utilisation,
                     .trace = trace ? &*trace : nullptr,
                     .total_steps = steps.total,
                     .device_peak = run.compiled.train().arena_bytes,
                     .tiers = TiersOf(run.compiled.train()),
                     .model_flops = [&](const StepReport& r) { return run.compiled.ModelFlops(r.tokens, r.attention); },
                     .peak_flops_per_second = run.engine.peak * run.setup.ranks.size()},
                    at);
  TEMPER_ASSIGN_OR_RETURN(const LoopEnd end, loop.Run());
  if (trace && run.setup.ranks.first()) {
    TEMPER_RETURN_IF_ERROR(trace->WriteChrome(PosixEnv(), JoinPath(out, "trace.json")));
  }
  if (end == LoopEnd::kStopped) {
    if (!ranks.alone()) IgnoreStopSignals();
    const int64_t step = loop.progress().step;
    LogInfo(step == 0 ? "stopped before the first step; continue with the same command and --resume"
                      : fmt::format("stopped at step {} of {}, checkpoint saved; continue with the same command and "
                                    "--resume",
                                    step, steps.total));
    return StopSignal() == SIGINT ? kExitStoppedByInt : kExitStoppedByTerm;
  }
  if (!run.setup.ranks.first()) return 0;
  return FinishRun(PosixEnv(), {.config = run.config(),
                                .resume = run.setup.resume,
                                .model_folder = run.setup.model.folder(),
                                .model = run.setup.model.model(),
                                .compiled = run.compiled,
                                .progress = loop.progress(),
                                .architecture = run.setup.model.model().facts().architecture,
                                .samples = static_cast<int64_t>(run.split.train.size()),
                                .chats = run.data.chat_template.has_value()});
}

Status Compile(Run& run) {
  const Ranks& ranks = run.setup.ranks;
  if (run.setup.reads_weights() || run.setup.keeps_base()) TEMPER_RETURN_IF_ERROR(run.setup.model.OpenWeights());
  if (run.setup.resume && run.setup.keeps_base()) {
    TEMPER_RETURN_IF_ERROR(run.setup.resume->CheckBase(run.setup.model.weights()));
  }
  TEMPER_ASSIGN_OR_RETURN(std::optional<std::string> kept,
                          run.setup.resume ? run.setup.resume->rates() : std::optional<std::string>());
  const RunConfig& c = run.config();
  run.rates.emplace(PosixEnv(), ranks, c.machine.rates, OnMachine(run), std::move(kept));
  const auto compile = [&] {
    return CompileWithin(run.available, run.setup.model.model(), run.config(), ranks.size(), ranks.rank(),
                         run.setup.resume ? run.setup.resume->decisions() : KeptDecisions(),
                         [&](const Result<bool>& needed) { return run.rates->Ask(needed); });
  };
  TEMPER_ASSIGN_OR_RETURN(run.compiled, compile());
  if (!run.setup.resume) return OkStatus();
  // A run resumed with more or fewer ranks keeps the rows of a step: gradient accumulation is adapted.
  TEMPER_ASSIGN_OR_RETURN(const int64_t accumulation,
                          run.setup.resume->AccumulationFor(run.config(), run.compiled.data_ranks()));
  if (accumulation == run.config().batch.gradient_accumulation_steps) return OkStatus();
  run.asked_accumulation = run.config().batch.gradient_accumulation_steps;
  run.setup.run.config.batch.gradient_accumulation_steps = accumulation;
  run.setup.run.notes["gradient_accumulation_steps"] = fmt::format(
      "adapted to {}, as the rows of a step follow from the checkpoint", Counted(run.compiled.data_ranks(), "rank"));
  TEMPER_ASSIGN_OR_RETURN(run.compiled, compile());
  return OkStatus();
}

Status ChooseProducts(Run& run) {
  const Ranks& ranks = run.setup.ranks;
  const Result<ProductChoices> kept = run.setup.resume ? run.setup.resume->products() : ProductChoices();
  TEMPER_RETURN_IF_ERROR(ranks.Agree(kept.status()));
  return run.engine.ChooseProducts(ranks, *kept);
}

// Each rank reads its part of the weights from the files of its machine.
Status CheckSameModel(const Run& run) {
  const Ranks& ranks = run.setup.ranks;
  const auto digest = run.setup.model.Digest();
  TEMPER_RETURN_IF_ERROR(ranks.Agree(digest.status()));
  return ranks.CheckSame(*digest, [&](const std::string&) {
    return InvalidArgument(
        fmt::format("{}: the model on this rank's machine differs from rank 0's: copy the same files to all "
                    "machines",
                    run.setup.model.folder()));
  });
}

// Cheap checks run first: settings, the weights' headers, memory, the disk, the data. Then the weights are loaded.
Result<int> Train(Run& run) {
  const RunConfig& c = run.config();
  const Ranks& ranks = run.setup.ranks;
  if (c.machine.device == DeviceChoice::kGpu) TEMPER_RETURN_IF_ERROR(run.engine.OpenOwnGpu(ranks));
  TEMPER_ASSIGN_OR_RETURN(run.available, MemoryOfRank(ranks, run.engine.gpu.get()));
  TEMPER_RETURN_IF_ERROR(ranks.Agree(Compile(run)));
  if (run.setup.reads_weights() && !ranks.alone()) TEMPER_RETURN_IF_ERROR(CheckSameModel(run));
  Announce(run);
  TEMPER_RETURN_IF_ERROR(run.engine.Reserve(run.compiled, c, ranks, run.setup.model, SpillFolder(c)));
  if (run.engine.gpu && c.machine.time_products) TEMPER_RETURN_IF_ERROR(ChooseProducts(run));
  if (ranks.first()) LogDisk(run);
  TEMPER_ASSIGN_OR_RETURN(CheckpointContents contents, ContentsOf(run));
  TEMPER_ASSIGN_OR_RETURN(const Bytes disk_bytes, DiskBytes(contents, run));
  TEMPER_RETURN_IF_ERROR(ranks.Agree(run.setup.folder ? run.setup.folder->Prepare(disk_bytes) : OkStatus()));
  TEMPER_RETURN_IF_ERROR(
      ranks.Agree(ranks.first() ? OkStatus() : OutputFolder::CheckSeen(PosixEnv(), c.output.output_dir)));
  TEMPER_RETURN_IF_ERROR(ranks.Agree(LoadData(run)));
  if (run.setup.folder) TEMPER_RETURN_IF_ERROR(run.setup.folder->UseTokens(TokenFilesOf(run)));
  contents.state.data_fingerprint = DataFingerprint(run.data.dataset, c.data.data);
  contents.state.eval_fingerprint = DataFingerprint(run.held_out().dataset, {});
  if (run.setup.resume) TEMPER_RETURN_IF_ERROR(run.setup.resume->CheckData(contents.state.data_fingerprint, c));
  TEMPER_ASSIGN_OR_RETURN(const StepCount steps, CountSteps(run));
  contents.state.total_steps = steps.total;
  TEMPER_ASSIGN_OR_RETURN(const RunProgress at, FillMemory(contents, run));
  return TrainFrom(at, steps, std::move(contents), run);
}

Result<int> TrainAs(const Ranks& ranks, const Arguments& arguments) {
  int exit_code = 0;
  TEMPER_ASSIGN_OR_RETURN(auto setup, SetUpTraining(arguments, Purpose::kTrain, kUsage, ranks, {}, &exit_code));
  if (!setup) return exit_code;
  Run run{.setup = std::move(*setup)};
  Result<int> result = Train(run);
  if (!result.ok()) return run.engine.LetGo(result.status(), ranks);
  return result;
}

Result<int> TrainOnRank(const Arguments& arguments) {
  ExitOnStopSignals(kExitStoppedByTerm, /*waits=*/Ranks::StartedBySrun());
  TEMPER_ASSIGN_OR_RETURN(const Ranks ranks, Ranks::Join());
  return ranks.End(TrainAs(ranks, arguments));
}

struct TrainSettings {
  RunConfig run;

  std::vector<OptionGroup> Groups() { return RunOptionGroups(run); }
};

}  // namespace

const Command kTrainCommand = {.name = "train",
                               .summary = "fine-tune a model (LoRA or full)",
                               .usage = kUsage,
                               .first_word = FirstWord::kYamlFile,
                               .words = "",
                               .run = TrainOnRank,
                               .read_options = ReadOptionsOf<TrainSettings>,
                               .writes_files = true};

}  // namespace temper
