#include "api/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "api/compile_training.h"
#include "api/run_contents.h"
#include "api/run_report.h"
#include "api/train_setup.h"
#include "api/training_run.h"
#include "base/log.h"
#include "base/quantity.h"
#include "checkpoint/adapter.h"
#include "checkpoint/averaged_weights.h"
#include "data/padded_rows.h"
#include "model/initialize.h"
#include "run/base_error.h"
#include "run/data.h"
#include "run/data_report.h"
#include "run/diverged_run.h"
#include "run/finished_run.h"
#include "run/machine.h"
#include "run/machine_report.h"
#include "run/reference_model.h"
#include "run/reference_scores.h"
#include "run/run_record.h"
#include "run/saver.h"
#include "train/loop.h"
#include "train/mismatched_kl.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

// About 70 MB: some hundred steps of a large model; an eighth of that for evaluations and the like.
constexpr size_t kTraceEvents = 1 << 20, kTraceEventsBesideSteps = kTraceEvents / 8;

// Rated answers are compared with others after the same prompts.
Status MismatchAnswers(TrainingRun& run) {
  const int64_t most = *run.config().data.max_seq_len;
  const std::array<std::span<const int32_t>, 2> lists = {run.split.train, run.split.evaluation};
  for (const auto& list : lists) {
    if (list.size() != 1) continue;
    return InvalidArgument(
        "task: kto compares answers with those to other prompts, and here is one alone: give more rows");
  }
  run.mismatched = TokenStore::Mismatched(run.data.dataset.store, lists, most);
  if (!run.eval_data) return OkStatus();
  const TokenStore& held_out = run.eval_data->dataset.store;
  if (held_out.size() < 2) {
    return InvalidArgument(
        "task: kto compares answers with those to other prompts, and eval_data has one alone: give more rows");
  }
  const std::vector<int32_t> all = held_out.AllSamples();
  const std::array<std::span<const int32_t>, 1> list = {all};
  run.eval_mismatched = TokenStore::Mismatched(held_out, list, most);
  return OkStatus();
}

Status LoadData(TrainingRun& run) {
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
  return c.objective.rule->rated ? MismatchAnswers(run) : OkStatus();
}

// What a new run's base loses by being quantised. A measurement that fails is no reason not to train.
void ReportBaseError(const TrainingRun& run) {
  const RunConfig& c = run.config();
  const OpenedModel& model = run.setup.model;
  const bool begins = run.setup.reads_weights() && !run.setup.resume;
  if (!c.machine.measure_base || !begins || !run.setup.ranks.alone() || run.engine.gpu || model.class_head() ||
      !QuantisesBase(model.model().facts(), c)) {
    return;
  }
  const Bytes arena = run.compiled.programs.first().arena_bytes;
  const Result<std::optional<BaseError>> error = MeasureBaseError(model, c, arena, run.data.dataset.store);
  if (!error.ok()) {
    LogWarning("what the base loses by being quantised could not be measured: " + error.status().message());
  } else if (*error) {
    LogInfo((*error)->Describe(c));
  } else {
    LogInfo(
        "base        what it loses by being quantised is not measured: memory has no room for the model's weights as "
        "its "
        "files have them beside the run");
  }
}

// A function that writes a value where this rank has it. `run` and `window` must outlive it.
auto WriterOf(const TrainingRun& run, HostWindow& window) {
  return [&](const std::string& name, const std::function<void(const PartView&)>& write) {
    const DevicePart to = run.engine.Buffer(name);
    if (!to.exists()) return OkStatus();
    return window.Fill(to, [&](const PartView& piece) {
      write(piece);
      return OkStatus();
    });
  };
}

// What adapters begin as, where that is not drawn.
Status LoadFirstAdapters(const TrainingRun& run) {
  if (run.setup.first_adapter.empty()) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const AdapterReader first,
                          AdapterReader::Open(PosixEnv(), run.setup.first_adapter, run.compiled.trains.adapters));
  return first.Load(run.engine.Lookup());
}

// Fills in weights, adapters and states for the first step; returns the run's progress.
Result<RunProgress> FillMemory(const CheckpointContents& contents, TrainingRun& run) {
  const auto seed = static_cast<uint64_t>(run.config().machine.seed);
  const std::optional<ResumePoint>& resume = run.setup.resume;
  HostWindow window;
  const auto fill = WriterOf(run, window);
  // Each machine may have its own copy of the files.
  const RankOfMachine here = run.setup.ranks.of_machine();
  TEMPER_RETURN_IF_ERROR(run.setup.model.LoadTeacher(run.engine.Lookup(), here.rank, here.ranks));
  if (run.setup.reads_weights()) {
    TEMPER_RETURN_IF_ERROR(run.setup.model.Load(run.engine.Lookup(), here.rank, here.ranks));
    TEMPER_RETURN_IF_ERROR(run.setup.model.LoadRowsBeside(run.compiled.trains.rows, run.engine.Lookup()));
    const bool begins = !run.setup.model.adapter() && !resume;
    TEMPER_RETURN_IF_ERROR(run.setup.model.LoadRowNormsOf(run.compiled.trains.adapters, NormsOf::kWeight,
                                                          /*magnitudes=*/begins, run.engine.Lookup()));
    if (begins) {
      TEMPER_RETURN_IF_ERROR(InitializeLora(run.compiled.trains.adapters, seed, fill));
      TEMPER_RETURN_IF_ERROR(LoadFirstAdapters(run));
      const std::optional<ClassHead>& head = run.setup.model.class_head();
      if (head && head->added) TEMPER_RETURN_IF_ERROR(InitializeHead(run.setup.model.model(), seed, fill));
    }
  } else if (!resume) {
    TEMPER_RETURN_IF_ERROR(InitializeModel(run.setup.model.model(), seed, fill));
  }
  if (!resume) {
    RunProgress start;
    TEMPER_ASSIGN_OR_RETURN(start.best.by, BestMetricOf(run.config()));
    return start;
  }
  TransferProgress progress("resume");
  TEMPER_ASSIGN_OR_RETURN(
      RunProgress at, resume->Restore(contents.identity, run.config(), contents.state.eval_fingerprint, run.compiled,
                                      run.engine.Lookup(), progress.Callback()));
  LogInfo(fmt::format("resume      from {} at step {}", resume->path(), at.step));
  return at;
}

// How full unpacked rows are once they are padded to a few lengths, in the first epoch; or why they are not.
void LogRowLengths(const TrainingRun& run, Packing& rows) {
  const RowLengths& lengths = run.compiled.lengths;
  const RunConfig& c = run.config();
  std::vector<int64_t> all = {*c.data.max_seq_len};
  all.insert(all.end(), lengths.train.begin(), lengths.train.end());
  if (all.size() > 1) {
    rows.Pack(static_cast<uint64_t>(c.machine.seed), 0);
    const int64_t at_once =
        lengths.per_step ? run.RowsPerStep() : c.batch.per_device_train_batch_size * run.compiled.data_ranks();
    LogInfo(fmt::format("            each {} has the shortest of {} tokens that holds its rows: {:.1f} % filled",
                        lengths.per_step ? "step" : "micro-batch", fmt::join(all, ", "),
                        100 * FilledPart(run.data.dataset.store, rows, at_once, all)));
  }
  if (lengths.why_not.empty()) return;
  LogInfo(fmt::format("            rows keep {} tokens: {}", *c.data.max_seq_len, lengths.why_not));
}

// Ranks that step together have the same lengths of rows.
Status CheckLengths(const Ranks& ranks, const RowLengths& lengths) {
  const std::string own = fmt::format("{}", fmt::join(lengths.train, ", "));
  return ranks.CheckSame(own, [&](const std::string& firsts) {
    return OutOfMemory(fmt::format("shorter rows ({}) fit on one rank and not on another: set pad_to_max_seq_len: true",
                                   own.empty() ? firsts : own));
  });
}

Result<StepCount> CountSteps(TrainingRun& run) {
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
  TEMPER_RETURN_IF_ERROR(CheckSteps(c, steps.total));
  LogInfo(fmt::format("rows        {}{} of {} tokens, {:.1f} % filled; {} per epoch, {} in all; {} hold their order",
                      rows.rows_vary() ? "some " : "", Counted(rows.rows(), "row"), *c.data.max_seq_len,
                      100 * rows.efficiency(), Counted(steps.per_epoch, "step"), Counted(steps.total, "step"),
                      ToString(rows.memory())));
  LogRowLengths(run, rows);
  if (c.data.packing && rows.rows() == 1 && rows.efficiency() < 0.5) {
    LogWarning(
        fmt::format("all of the data fills {:.0f} % of one row of {} tokens: a lower max_seq_len takes less memory "
                    "and time",
                    100 * rows.efficiency(), *c.data.max_seq_len));
  }
  TEMPER_ASSIGN_OR_RETURN(
      const PackedRows packed,
      PackedRowsOf(c, SamplesPerEpoch(run.split.train, run.Packing().passes), rows.rows(), run.RowsPerStep()));
  for (const std::string& warning : StepWarnings(c, steps.total, packed)) LogWarning(warning);
  if (!run.setup.resume) return steps;
  rows.Pack(static_cast<uint64_t>(c.machine.seed), done.at.epoch);
  TEMPER_ASSIGN_OR_RETURN(const auto changes,
                          run.setup.resume->DescribeChanges({c, steps.total, run.RowsPerStep()}, rows.rows()));
  for (const std::string& line : changes) LogInfo("changed     " + line);
  return steps;
}

// For batches of at most `samples`; nullopt where answers are not rated.
std::optional<MismatchedKl> MakeKl(TrainingRun& run, const std::optional<TokenStore>& store, int64_t samples) {
  if (!run.config().objective.rule->rated) return std::nullopt;
  return std::make_optional<MismatchedKl>(run.engine.Of(ProgramKind::kReference), *store,
                                          *run.config().data.max_seq_len, samples, run.peers());
}

std::optional<Evaluator> MakeEvaluator(const TrainingRun& run, MismatchedKl* kl) {
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
      run.engine.Of(ProgramKind::kEval), from.store, samples, in_order,
      [&from](int32_t sample) { return from.PlaceOf(sample); }, run.peers(), *run.config().objective.rule,
      run.config().objective.rule->head == ObjectiveRule::Head::kClasses ? run.setup.model.model().facts().classes : 0,
      kl, run.engine.ShorterOf(ProgramKind::kEval, run.compiled.lengths.eval));
}

// With an objective that compares with the model as it was: what it said of the data. ResumePoint::Restore has checked
// that a run that goes on has the same model.
Result<std::optional<ReferenceScores>> Score(const CheckpointContents& contents, const RunCallbacks& callbacks,
                                             TrainingRun& run) {
  const ObjectiveRule& objective = *run.config().objective.rule;
  if (!objective.has(ProgramKind::kReference)) return std::optional<ReferenceScores>();
  static constexpr std::array<std::string_view, 1> kOneAnswer = {"rated"};
  const auto of = [](std::optional<TokenStore>& store) { return store ? &*store : nullptr; };
  ScoreRequest request{
      .reference = run.engine.Of(ProgramKind::kReference),
      .train = run.data,
      .evaluation = run.eval_data ? &*run.eval_data : nullptr,
      .mismatched = of(run.mismatched),
      .evaluation_mismatched = of(run.eval_mismatched),
      .train_fingerprint = contents.state.data_fingerprint,
      .evaluation_fingerprint = contents.state.eval_fingerprint,
      .max_seq_len = *run.config().data.max_seq_len,
      .parts = objective.parts.empty() ? std::span<const std::string_view>(kOneAnswer) : objective.parts,
      .ranks = run.setup.ranks,
      .peers = run.peers()};
  if (run.setup.resume) request.kept = JoinPath(run.config().output.output_dir, kReferenceFile);
  if (run.setup.ranks.alone()) request.stop = [&callbacks] { return callbacks.stop.Asked(); };
  TEMPER_ASSIGN_OR_RETURN(ReferenceScores scores, ScoreReference(request));
  return std::optional(std::move(scores));
}

// The other model that the run compares with, if there is one and it is still to be scored. All ranks call it at the
// same place.
Result<std::optional<OpenedModel>> ReferenceOf(const TrainingRun& run) {
  const std::string& path = run.config().objective.reference;
  const Ranks& ranks = run.setup.ranks;
  if (path.empty() || run.setup.resume) return std::optional<OpenedModel>();
  Result<OpenedModel> reference =
      OpenReference(PosixEnv(), path, run.setup.model, run.config().model.model, *run.config().data.max_seq_len);
  TEMPER_RETURN_IF_ERROR(ranks.Agree(reference.status()));
  if (!ranks.alone()) {
    const auto digest = reference->Digest();
    TEMPER_RETURN_IF_ERROR(ranks.Agree(digest.status()));
    TEMPER_RETURN_IF_ERROR(ranks.CheckSame(*digest, [&](const std::string&) {
      return InvalidArgument(fmt::format(
          "reference {}: on this rank's machine it differs from rank 0's: copy the same files to all machines", path));
    }));
  }
  return std::optional(*std::move(reference));
}

// REQUIRES: memory is reserved.
Status CheckHoldsReference(const TrainingRun& run) {
  if (run.engine.far.mapped.empty()) return OkStatus();
  return Unsupported(
      fmt::format("reference {}: weights of {} are read from its files while it trains (memory.disk), so there is no "
                  "place for those of another model: train without --reference, or give the run more memory",
                  run.config().objective.reference, run.config().model.model));
}

// The files that the first rank writes beside the checkpoints.
struct RunRecords {
  std::unique_ptr<MetricsLog> metrics;
  std::unique_ptr<TensorBoardWriter> tensorboard;
};

std::vector<std::string> TokenFilesOf(const TrainingRun& run) {
  std::vector<std::string> used = {run.data.token_file};
  if (run.eval_data) used.push_back(run.eval_data->token_file);
  return used;
}

// But for the token file, the first change of the output folder.
Status OpenRecords(const RunProgress& at, const std::optional<ReferenceScores>& scores, TrainingRun& run,
                   RunRecords* records) {
  const RunConfig& c = run.config();
  const std::string& out = c.output.output_dir;
  TEMPER_RETURN_IF_ERROR(run.setup.folder->Begin(at.step));
  TEMPER_RETURN_IF_ERROR(
      WriteTextFileAtomically(PosixEnv(), JoinPath(out, kRunConfigFile), RepeatableConfig(PosixEnv(), c)));
  if (scores && !run.setup.resume) {
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), JoinPath(out, kReferenceFile), PrintScores(*scores)));
  }
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

// TrainingLoop::Parts::exchange_averages.
std::function<Status()> ExchangeOf(TrainingRun& run) {
  if (!run.config().optimizer.ema_eval) return nullptr;
  const Executor& train = run.engine.Of(ProgramKind::kTrain);
  return [&run, &train] {
    return ExchangeAverages(run.compiled.train(), [&](const std::string& name) {
      return train.BufferPart(train.program().FindBuffer(name));
    });
  };
}

// Trains from `at` to the end, or until it is asked to stop.
Result<TrainResult> TrainFrom(const RunProgress& at, const StepCount& steps, CheckpointContents contents,
                              const std::optional<ReferenceScores>& scores, const RunCallbacks& callbacks,
                              TrainingRun& run) {
  const RunConfig& c = run.config();
  const std::string& out = c.output.output_dir;
  const Dataset& dataset = run.data.dataset;
  TEMPER_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(c, steps.total));
  const int64_t most_of_step = std::min(run.RowsPerStep() * *c.data.max_seq_len / 2, dataset.store.size());
  std::optional<MismatchedKl> kl = MakeKl(run, run.mismatched, most_of_step),
                              eval_kl = MakeKl(run, run.eval_data ? run.eval_mismatched : run.mismatched,
                                               run.held_out().dataset.store.size());
  Trainer trainer(run.engine.Of(ProgramKind::kTrain), dataset.store, run.split.train, run.Packing(),
                  {.micro_batches = c.batch.gradient_accumulation_steps,
                   .rows_per_micro_batch = c.batch.per_device_train_batch_size,
                   .schedule = schedule,
                   .update = UpdateSpecOf(c.optimizer),
                   .seed = static_cast<uint64_t>(c.machine.seed),
                   .place = [&dataset](int32_t sample) { return dataset.PlaceOf(sample); },
                   .objective = c.objective.rule,
                   .experts = {run.compiled.counts_experts, run.compiled.router_aux_loss_coef},
                   .attention_flops = [&run](int64_t tokens) { return run.compiled.AttentionFlops(tokens); },
                   .peers = run.peers(),
                   .kl = kl ? &*kl : nullptr,
                   .shorter = run.engine.ShorterOf(ProgramKind::kTrain, run.compiled.lengths.train),
                   .one_length_per_step = run.compiled.lengths.per_step});
  if (at.step > 0) TEMPER_RETURN_IF_ERROR(trainer.Restore(at.step, at.sampler));
  std::optional<Evaluator> evaluator = MakeEvaluator(run, eval_kl ? &*eval_kl : nullptr);
  if (!run.engine.gpu) run.engine.peak = CpuPeak(ComputeDType(c), static_cast<int>(*c.machine.threads));
  const double peak = SettlePeak(run);

  Utilisation utilisation(run.engine.kernel_time, run.engine.collective_time);
  const Ranks& ranks = run.setup.ranks;
  callbacks.stop.StepsBegin();
  RunRecords records;
  TEMPER_RETURN_IF_ERROR(ranks.Agree(ranks.first() ? OpenRecords(at, scores, run, &records) : OkStatus()));
  if (!ranks.alone()) {
    TEMPER_ASSIGN_OR_RETURN(contents.tensors, OwnParts(std::move(contents.tensors), *ranks.communicator()));
  }
  RunSaver saver(PosixEnv(),
                 {.output_dir = out,
                  .save_total_limit = c.output.save_total_limit,
                  .rank = ranks.rank(),
                  .ranks = ranks.size(),
                  .stream = run.engine.reading ? run.engine.reading.get() : &HostStream(),
                  .saved = callbacks.saved},
                 std::move(contents), ranks, {run.compiled.data_ranks(), run.asked_accumulation});
  ProgressDisplay display(/*silent=*/!run.setup.ranks.first());
  TrainingLoop loop({.config = c,
                     .trainer = trainer,
                     .evaluator = evaluator ? &*evaluator : nullptr,
                     .saver = saver,
                     .metrics = records.metrics.get(),
                     .tensorboard = records.tensorboard.get(),
                     .display = display,
                     .peers = run.peers(),
                     .utilisation = &utilisation,
                     .total_steps = steps.total,
                     .steps_per_epoch = steps.per_epoch,
                     .device_peak = run.compiled.train().arena_bytes,
                     .tiers = TiersOf(run.compiled.train()),
                     .model_flops = [&](const StepReport& r) { return run.compiled.ModelFlops(r.tokens, r.attention); },
                     .peak_flops_per_second = peak * run.setup.ranks.size(),
                     .stops = [&callbacks] { return callbacks.stop.Asked(); },
                     .stop_is_told = callbacks.stop.IsTold(),
                     .events = callbacks.events,
                     .exchange_averages = ExchangeOf(run)},
                    at);
  TEMPER_ASSIGN_OR_RETURN(const LoopEnd end, loop.Run());
  if (c.output.profile && run.setup.ranks.first()) {
    TEMPER_RETURN_IF_ERROR(WriteChrome(PosixEnv(), JoinPath(out, "trace.json"), run.engine.traces));
  }
  const RunProgress& progress = loop.progress();
  TrainResult result{.output_dir = out,
                     .step = progress.step,
                     .total_steps = steps.total,
                     .tokens = progress.tokens,
                     .seconds = progress.seconds,
                     .eval_loss = progress.eval_loss,
                     .best_eval_loss = progress.best.by.is_loss() ? progress.best.value : std::nullopt,
                     .best_metric = progress.best.value,
                     .best_step = progress.best.step};
  if (end == LoopEnd::kStopped) {
    callbacks.stop.EndsEarly();
    result.end = TrainResult::End::kStopped;
    result.why = result.step == 0 ? "stopped before the first step"
                                  : fmt::format("stopped at step {} of {}, checkpoint saved", result.step, steps.total);
    LogInfo(result.why + "; continue with the same command and --resume");
    return result;
  }
  if (end == LoopEnd::kDiverged) {
    callbacks.stop.EndsEarly();
    result.end = TrainResult::End::kDiverged;
    if (!ranks.first()) return result;
    TEMPER_ASSIGN_OR_RETURN(result.why, DescribeDivergedRun(PosixEnv(), c, progress, /*stopped=*/true));
    LogError(result.why);
    return result;
  }
  if (result.step < steps.total) result.why = fmt::format("stopped early after step {}", result.step);
  if (!ranks.first()) return result;
  TEMPER_RETURN_IF_ERROR(FinishRun(PosixEnv(), {.config = run.config(),
                                                .resume = run.setup.resume,
                                                .model_folder = run.setup.model.folder(),
                                                .model = run.setup.model.model(),
                                                .compiled = run.compiled,
                                                .progress = progress,
                                                .architecture = run.setup.model.model().facts().architecture,
                                                .samples = static_cast<int64_t>(run.split.train.size()),
                                                .chats = run.data.chat_template.has_value()}));
  return result;
}

Status ChooseProducts(TrainingRun& run) {
  const Ranks& ranks = run.setup.ranks;
  const Result<ProductChoices> kept = run.setup.resume ? run.setup.resume->products() : ProductChoices();
  TEMPER_RETURN_IF_ERROR(ranks.Agree(kept.status()));
  return run.engine.ChooseProducts(ranks, *kept);
}

// Each rank reads its part of the weights from the files of its machine.
Status CheckSameModel(const TrainingRun& run, const OpenedModel& model) {
  const Ranks& ranks = run.setup.ranks;
  const auto digest = model.Digest();
  TEMPER_RETURN_IF_ERROR(ranks.Agree(digest.status()));
  return ranks.CheckSame(*digest, [&](const std::string&) {
    return InvalidArgument(
        fmt::format("{}: the model on this rank's machine differs from rank 0's: copy the same files to all "
                    "machines",
                    model.folder()));
  });
}

// All ranks write their parts of checkpoints into one folder.
Status CheckSameFolder(TrainingRun& run) {
  const Ranks& ranks = run.setup.ranks;
  Result<std::string> mark = std::string();
  if (ranks.first()) mark = run.setup.folder->Mark();
  TEMPER_RETURN_IF_ERROR(ranks.Agree(mark.status()));
  TEMPER_ASSIGN_OR_RETURN(const std::string firsts, ranks.FromFirst(*mark));
  const std::string& path = run.config().output.output_dir;
  return ranks.Agree(ranks.first() ? OkStatus() : OutputFolder::CheckSeen(PosixEnv(), path, firsts));
}

// A run that is asked to stop before its first step has nothing to save. Of several ranks none is asked: they would
// have to agree.
std::optional<TrainResult> StoppedBeforeSteps(const RunCallbacks& callbacks, const TrainingRun& run) {
  if (!run.setup.ranks.alone() || !callbacks.stop.Asked()) return std::nullopt;
  TrainResult result{.end = TrainResult::End::kStopped,
                     .why = "stopped before the first step, with nothing to save",
                     .output_dir = run.config().output.output_dir};
  if (run.setup.resume) {
    result.step = run.setup.resume->state().step;
    result.tokens = run.setup.resume->state().tokens;
    result.why = fmt::format("stopped before step {}, with nothing new to save", result.step + 1);
  }
  LogInfo(result.why);
  return result;
}

// Cheap checks run first: settings, the weights' headers, memory, the disk, the data. Then the weights are loaded.
Result<TrainResult> Train(const RunCallbacks& callbacks, TrainingRun& run) {
  const RunConfig& c = run.config();
  const Ranks& ranks = run.setup.ranks;
  if (c.machine.device == DeviceChoice::kGpu) TEMPER_RETURN_IF_ERROR(run.engine.OpenOwnGpu(ranks));
  TEMPER_ASSIGN_OR_RETURN(run.available, MemoryOfRank(ranks, run.engine.gpu.get()));
  TEMPER_RETURN_IF_ERROR(ranks.Agree(CompileTraining(run)));
  TEMPER_RETURN_IF_ERROR(CheckLengths(ranks, run.compiled.lengths));
  if (run.setup.reads_weights() && !ranks.alone()) {
    TEMPER_RETURN_IF_ERROR(CheckSameModel(run, run.setup.model));
  }
  const OpenedModel* const teacher = run.setup.model.teacher();
  if (teacher != nullptr && !ranks.alone()) TEMPER_RETURN_IF_ERROR(CheckSameModel(run, *teacher));
  // A resumed run has its scores already.
  TEMPER_ASSIGN_OR_RETURN(const std::optional<OpenedModel> reference, ReferenceOf(run));
  Announce(run);
  if (auto stopped = StoppedBeforeSteps(callbacks, run)) return *std::move(stopped);
  TEMPER_RETURN_IF_ERROR(run.engine.Reserve(run.compiled, c, ranks, run.setup.model, run.SpillFolder()));
  if (reference) TEMPER_RETURN_IF_ERROR(ranks.Agree(CheckHoldsReference(run)));
  if (c.output.profile && ranks.first()) run.engine.RecordTraces(kTraceEvents, kTraceEventsBesideSteps);
  if (run.engine.gpu && c.machine.time_products) TEMPER_RETURN_IF_ERROR(ChooseProducts(run));
  if (ranks.first()) LogDisk(run);
  TEMPER_ASSIGN_OR_RETURN(CheckpointContents contents, ContentsOf(run));
  TEMPER_ASSIGN_OR_RETURN(const Bytes disk_bytes, DiskBytes(contents, run));
  TEMPER_RETURN_IF_ERROR(ranks.Agree(run.setup.folder ? run.setup.folder->Prepare(disk_bytes) : OkStatus()));
  if (!ranks.alone()) TEMPER_RETURN_IF_ERROR(CheckSameFolder(run));
  TEMPER_RETURN_IF_ERROR(ranks.Agree(LoadData(run)));
  if (auto stopped = StoppedBeforeSteps(callbacks, run)) return *std::move(stopped);
  if (run.setup.folder) TEMPER_RETURN_IF_ERROR(run.setup.folder->UseTokens(TokenFilesOf(run)));
  contents.state.data_fingerprint = DataFingerprint(run.data.dataset, c.data.data);
  contents.state.eval_fingerprint = DataFingerprint(run.held_out().dataset, {});
  if (run.setup.resume) TEMPER_RETURN_IF_ERROR(run.setup.resume->CheckData(contents.state.data_fingerprint, c));
  TEMPER_ASSIGN_OR_RETURN(const StepCount steps, CountSteps(run));
  contents.state.total_steps = steps.total;
  Result<std::optional<ReferenceScores>> scores = std::optional<ReferenceScores>();
  if (reference) {
    TEMPER_RETURN_IF_ERROR(ranks.Agree(LoadReference(*reference, run.compiled.trains.adapters, run.compiled.trains.rows,
                                                     run.engine.Lookup(), ranks.of_machine())));
    scores = Score(contents, callbacks, run);
    if (auto stopped = StoppedBeforeSteps(callbacks, run)) return *std::move(stopped);
    TEMPER_RETURN_IF_ERROR(scores.status());
  }
  ReportBaseError(run);
  if (auto stopped = StoppedBeforeSteps(callbacks, run)) return *std::move(stopped);
  TEMPER_ASSIGN_OR_RETURN(const RunProgress at, FillMemory(contents, run));
  if (!reference) scores = Score(contents, callbacks, run);
  if (auto stopped = StoppedBeforeSteps(callbacks, run)) return *std::move(stopped);
  TEMPER_RETURN_IF_ERROR(scores.status());
  return TrainFrom(at, steps, std::move(contents), *scores, callbacks, run);
}

}  // namespace

Result<TrainResult> TrainOnRanks(RunRequest request, const Ranks& ranks, const RunCallbacks& callbacks) {
  TEMPER_ASSIGN_OR_RETURN(TrainSetup setup, SetUpTraining(std::move(request), Purpose::kTrain, ranks));
  TrainingRun run{.setup = std::move(setup)};
  Result<TrainResult> result = Train(callbacks, run);
  if (!result.ok()) return run.engine.LetGo(result.status(), ranks);
  return result;
}

}  // namespace temper
