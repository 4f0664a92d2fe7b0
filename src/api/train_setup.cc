#include "api/train_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "base/quantity.h"
#include "base/team.h"
#include "checkpoint/companion_files.h"
#include "compile/run/compiled_run.h"
#include "config/run_options.h"
#include "config/token_rows_option.h"
#include "data/label_search.h"
#include "data/records.h"
#include "data/weight_search.h"
#include "format/data_file_name.h"
#include "format/python_json.h"
#include "model/known_models.h"
#include "run/data.h"
#include "run/expand_sources.h"
#include "run/grown_model.h"
#include "run/machine.h"
#include "run/residual_model.h"
#include "run/teacher_model.h"
#include "settings/best_metric.h"
#include "tensor/format_rule.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

// Cheap checks of the data files. The first rank makes them for all.
Status CheckDataFiles(Env& env, const RunConfig& config) {
  const RunConfig::Data& data = config.data;
  const RowUse use = RowUseOf(config);
  for (const auto& [option, sources] : {std::pair{"data", &data.data}, {"eval_data", &data.eval_data}}) {
    TEMPER_ASSIGN_OR_RETURN(const auto inputs, FindInputs(env, *sources, data.reading, use, option));
    for (const DataInput& input : inputs) {
      const std::string& path = input.path;
      if (const auto file = env.OpenForRead(path); !file.ok()) {
        return file.status().WithContext(fmt::format("--{}", option));
      }
      // The first rows show the format; a text file is only read when needed.
      if (KindOfDataFile(path) == DataFileKind::kText) {
        TEMPER_RETURN_IF_ERROR(CheckUse(input));
        continue;
      }
      if (const auto rows = RecordReader::Open(env, path, input.reading, use); !rows.ok()) {
        return rows.status().WithContext(fmt::format("--{}", option));
      }
    }
  }
  return OkStatus();
}

// Folders and patterns become the files that they stand for, so that the saved configuration names what was trained on.
// The first rank looks for all; its `folder` must keep what is found.
Status ExpandData(const Ranks& ranks, const std::optional<OutputFolder>& folder,
                  const std::optional<ResumePoint>& resume, RunConfig& config) {
  Status expanded;
  for (const auto& [option, member] :
       {std::pair{"data", &RunConfig::Data::data}, {"eval_data", &RunConfig::Data::eval_data}}) {
    if (!ranks.first() || !expanded.ok()) continue;
    DataSources& sources = config.data.*member;
    auto files = ExpandSources(PosixEnv(), sources,
                               {.option = option,
                                .output_dir = config.output.output_dir,
                                .split = member == &RunConfig::Data::data ? config.data.split : std::string(),
                                .for_training = member == &RunConfig::Data::data,
                                .before = resume ? &(resume->data().*member) : nullptr});
    expanded = files.status();
    if (files.ok()) sources = *std::move(files);
    for (const DataSource& source : sources) {
      if (folder && expanded.ok()) expanded = folder->CheckKeeps(option, source.path);
    }
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(expanded));
  config.data.split.clear();  // the files are of it
  if (ranks.alone()) return OkStatus();
  RunConfig of_data;
  of_data.data.data = config.data.data;
  of_data.data.eval_data = config.data.eval_data;
  TEMPER_ASSIGN_OR_RETURN(const std::string firsts, ranks.FromFirst(PrintRunConfig(of_data)));
  TEMPER_ASSIGN_OR_RETURN(const RunConfig first, ParseRunConfig(firsts, "the data of rank 0"));
  config.data.data = first.data.data;
  config.data.eval_data = first.data.eval_data;
  return OkStatus();
}

// A plan may name files that do not exist yet; they count as without weights.
bool FindsWeights(Env& env, const RunConfig& config) {
  const RunConfig::Data& data = config.data;
  if (!FactsOf(RowUseOf(config)).weighs_tokens) return false;  // whatever a field of that name means
  std::vector<std::pair<DataInput, Bytes>> files;              // with their sizes
  Bytes total{}, done{};
  for (const DataSources* sources : {&data.data, &data.eval_data}) {
    const auto inputs = FindInputs(env, *sources, data.reading, RowUse::kAnswers, "data");
    if (!inputs.ok()) continue;
    for (const DataInput& input : *inputs) {
      const auto file = env.OpenForRead(input.path);
      files.emplace_back(input, file.ok() ? (*file)->size() : Bytes{});
      total += files.back().second;
    }
  }
  TransferProgress progress("search data for weights");
  return std::any_of(files.begin(), files.end(), [&](const auto& file) {
    const auto& [input, size] = file;
    const bool found = HasWeights(env, input.path, input.max_rows, input.reading,
                                  [&](Bytes searched, Bytes) { progress.Update(done + searched, total); });
    done += size;
    return found;
  });
}

// Whether rows of the training or the evaluation data have weights; the run must be compiled accordingly, before the
// data is read. The first rank searches for all.
Result<bool> FirstRankFindsWeights(const Ranks& ranks, const RunConfig& config) {
  const bool weighted = ranks.first() && FindsWeights(PosixEnv(), config);
  constexpr char kWeighted[] = "weighted";
  TEMPER_ASSIGN_OR_RETURN(const std::string firsts, ranks.FromFirst(weighted ? kWeighted : ""));
  return firsts == kWeighted;
}

// The first rank claims the folder for all. Returns the checkpoint to resume from, empty for none.
Result<std::string> ClaimFolder(const Ranks& ranks, const RunConfig& config, const std::string& yaml,
                                std::optional<OutputFolder>* folder) {
  Status claimed;
  std::string resume_from;
  if (ranks.first()) {
    auto result = OutputFolder::Claim(PosixEnv(), config, yaml);
    claimed = result.status();
    if (result.ok()) {
      folder->emplace(std::move(*result));
      resume_from = (*folder)->resume_from().value_or("");
    }
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(claimed));
  return ranks.FromFirst(resume_from);
}

// Ranks with different settings would wait for each other forever, or even train something else.
Status CheckSettings(const Ranks& ranks, const RunConfig& config) {
  return ranks.CheckSame(PrintRunConfig(SettingsOfAllRanks(config)), [&](const std::string& firsts) -> Status {
    TEMPER_ASSIGN_OR_RETURN(const RunConfig first, ParseRunConfig(firsts, "the settings of rank 0"));
    return InvalidArgument(
        fmt::format("this rank's settings differ from rank 0's: {}. All ranks need the "
                    "same command line and the same YAML file",
                    DescribeDifferences(config, first)));
  });
}

// Of the training data, for a model that has no head of classes. A plan may name files that do not exist yet.
Result<ClassNames> FindRunClasses(Env& env, const RunConfig& config, Purpose purpose) {
  TransferProgress progress("search data for labels");
  const auto found = [&]() -> Result<ClassNames> {
    TEMPER_ASSIGN_OR_RETURN(const auto inputs,
                            FindInputs(env, config.data.data, config.data.reading, RowUse::kLabels, "data"));
    if (inputs.empty()) return InvalidArgument("no data is given");
    return FindClasses(env, inputs, [&](Bytes done, const std::string& path) {
      const auto file = env.OpenForRead(path);
      if (file.ok()) progress.Update(done, (*file)->size());
    });
  }();
  if (found.ok() || purpose == Purpose::kTrain) return found;
  LogInfo("note        the plan is for two classes: " + found.status().message());
  return ClassNames{{"0", "1"}};
}

// The first rank searches for all.
FindsClasses ClassesFor(const Ranks& ranks, const RunConfig& config, Purpose purpose) {
  using Head = ObjectiveRule::Head;
  if (config.objective.rule->head == Head::kVocabulary) return nullptr;
  if (config.objective.rule->head == Head::kReward)
    return [] { return ClassNames{{"LABEL_0"}}; };  // as in transformers
  return [&ranks, config, purpose]() -> Result<ClassNames> {
    Result<ClassNames> classes = ranks.first() ? FindRunClasses(PosixEnv(), config, purpose) : ClassNames();
    TEMPER_RETURN_IF_ERROR(ranks.Agree(classes.status()));
    TEMPER_ASSIGN_OR_RETURN(const std::string firsts, ranks.FromFirst(classes->ToJson()));
    return ClassNames::FromJson(firsts);
  };
}

std::vector<std::string> NamesOfModel(std::vector<std::string> saved) {
  std::erase(saved, "classifier");
  return saved;
}

// A head of words cannot learn classes, nor one of classes words; that of a reward model has one row.
Status CheckHead(const OpenedModel& model, const RunConfig& config) {
  using Head = ObjectiveRule::Head;
  const ObjectiveRule& rule = *config.objective.rule;
  const int64_t classes = model.model().facts().classes;
  const Head has = classes == 0 ? Head::kVocabulary : classes == 1 ? Head::kReward : Head::kClasses;
  if (has == rule.head) return OkStatus();
  const ObjectiveRule* const fits = has == Head::kReward ? &Reward() : &Classify();
  return InvalidArgument(fmt::format(
      "model {} judges sequences ({}, {}): set task: {}, or give the model of language that it was made from",
      config.model.model, model.model().facts().architecture,
      classes == 1 ? "a reward" : fmt::format("{} classes", classes), fits->name));
}

// Whether evaluations report the number that the run compares them by: most is known from the task alone.
Status CheckBestMetric(const OpenedModel& model, const RunConfig& config) {
  TEMPER_ASSIGN_OR_RETURN(const BestMetric metric, BestMetricOf(config));
  const int64_t classes = model.model().facts().classes;
  if (metric.name != kBinaryF1 || classes == 2) return OkStatus();
  return InvalidArgument(fmt::format("metric_for_best_model: {} is reported of two classes, and here are {}: set {}",
                                     metric.shown(), classes, kMacroF1));
}

// A full run would save dequantised experts beside a config.json that names their format.
Status CheckTrainsFiles(const OpenedModel& model, const RunConfig& config) {
  const auto& experts = model.model().facts().experts_format;
  const bool of_experts = experts && experts->quantised() && !model.model().facts().modules_format;
  if (config.model.method != TrainMethod::kFull || model.folder().empty()) return OkStatus();
  if (model.model().facts().dequantised_as_read) {
    return InvalidArgument(
        fmt::format("{}: weights are quantised, which method: full cannot train: set method: lora, or dequantise them "
                    "first: temper export {} --dtype bf16 --output_dir FOLDER",
                    JoinPath(model.folder(), kModelConfigFile), config.model.model));
  }
  if (!of_experts) return OkStatus();
  return InvalidArgument(
      fmt::format("{}: experts are stored as {}, which method: full cannot train: set method: "
                  "lora, or dequantise them first: temper export {} --dtype bf16 --output_dir FOLDER",
                  JoinPath(model.folder(), kModelConfigFile), RuleOf(*experts).title, config.model.model));
}

// Writes down the coefficient of the loss that balances experts where config.json gives it, so that a resumed run keeps
// it: one that is older than this loss goes on without it. Classifiers of transformers have no such loss.
void SettleBalance(const ModelFacts& facts, const std::optional<ResumePoint>& resume, RunConfig* config) {
  std::optional<double>& coefficient = config->regularisation.router_aux_loss_coef;
  if (coefficient || facts.router_aux_loss_coef == 0) return;
  const bool of_words = config->objective.rule->head == ObjectiveRule::Head::kVocabulary;
  coefficient = resume ? resume->router_aux_loss_coef() : of_words ? facts.router_aux_loss_coef : 0;
}

// What a run trains: the model that it names, or one made of it beside the run. The first rank makes it for all.
struct TrainedModel {
  std::string model, first_adapter;
};

// Without what adapters begin as.
Result<TrainedModel> WithoutFirstAdapters(const Ranks& ranks, Purpose purpose, const RunConfig& config) {
  const RunConfig::Model& m = config.model;
  const std::string& out = config.output.output_dir;
  const bool makes = purpose == Purpose::kTrain;
  if (!makes) return TrainedModel{m.model};  // of the same shapes
  Result<ResidualModel> made = ResidualModel();
  if (ranks.first()) {
    made = MakeResidualModel(PosixEnv(),
                             {.model = m.model,
                              .init_lora_weights = m.init_lora_weights,
                              .lora = config.lora,
                              .output_dir = out,
                              .threads = static_cast<int>(config.machine.threads.value_or(AvailableProcessors())),
                              .in_f32 = m.dtype == ComputeType::kF32});
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(made.status()));
  TrainedModel trained;
  TEMPER_ASSIGN_OR_RETURN(trained.model, ranks.FromFirst(made->folder));
  TEMPER_ASSIGN_OR_RETURN(trained.first_adapter, ranks.FromFirst(made->adapter));
  return trained;
}

// With rows for new tokens, which are then trained beside an adapter, unless the user says which rows or tables are.
Result<TrainedModel> WithNewTokens(const Ranks& ranks, Purpose purpose, RunConfig* config) {
  const RunConfig::Model& m = config->model;
  const std::string& out = config->output.output_dir;
  const bool makes = purpose == Purpose::kTrain;
  Result<GrownModel> grown = GrownModel();
  const bool known = makes || (!out.empty() && !FindKnownModel(m.model));
  if (known && ranks.first()) grown = GrowModel(PosixEnv(), {m.model, m.add_tokens, out, makes});
  TEMPER_RETURN_IF_ERROR(ranks.Agree(grown.status()));
  if (!makes && grown->folder.empty()) {
    LogInfo("note        the plan is of the model without rows for new tokens (add_tokens), which a run makes first");
    return TrainedModel{m.model};
  }
  TrainedModel trained;
  TEMPER_ASSIGN_OR_RETURN(trained.model, ranks.FromFirst(grown->folder));
  TEMPER_ASSIGN_OR_RETURN(const std::string rows, ranks.FromFirst(grown->rows));
  TEMPER_ASSIGN_OR_RETURN(const std::string tables, ranks.FromFirst(fmt::format("{}", fmt::join(grown->tables, " "))));
  const std::vector<std::string> saved = config->lora.saved_names();
  const bool trains_tables = std::any_of(saved.begin(), saved.end(), [&](const std::string& name) {
    return fmt::format(" {} ", tables).find(fmt::format(" {} ", name)) != std::string::npos;
  });
  if (rows.empty() || trains_tables || m.method != TrainMethod::kLora ||
      !config->lora.trainable_token_indices.empty()) {
    return trained;
  }
  const Option option = TokenRowsOption(config->lora.trainable_token_indices);
  TEMPER_RETURN_IF_ERROR(std::get<Repeatable>(option.target).set(OrderedJson(rows), "add_tokens", false));
  return trained;
}

Result<TrainedModel> ModelToTrain(const Ranks& ranks, Purpose purpose, RunConfig* config) {
  if (!config->model.add_tokens.empty()) return WithNewTokens(ranks, purpose, config);
  if (ChangesBase(config->model.init_lora_weights)) return WithoutFirstAdapters(ranks, purpose, *config);
  return TrainedModel{config->model.model};
}

Result<TrainSetup> SetUp(RunRequest request, Purpose purpose, const Ranks& ranks, const FactsOfRun& facts_of) {
  RunConfig& config = request.config;
  if (!ranks.alone()) {
    ranks.communicator()->SetPatience({.idle = {config.watch.idle_seconds}, .busy = {config.watch.busy_seconds}});
  }

  // Like the data, only the first rank needs it.
  std::string chat_template = ranks.first() ? config.data.chat_template : "", templates_of;
  std::optional<OutputFolder> folder;
  std::optional<ResumePoint> resume;
  if (purpose == Purpose::kTrain) {
    TEMPER_ASSIGN_OR_RETURN(const std::string resume_from, ClaimFolder(ranks, config, request.file, &folder));
    if (!resume_from.empty()) {
      TEMPER_ASSIGN_OR_RETURN(resume, ResumePoint::Open(PosixEnv(), resume_from));
      resume->KeepChoices(config);
      if (ranks.first()) templates_of = resume->templates_of();
    }
  }
  // A plan may name files that do not exist yet: it says so, and goes on.
  Status data = ExpandData(ranks, folder, resume, config);
  if (purpose == Purpose::kTrain) TEMPER_RETURN_IF_ERROR(data);
  TEMPER_ASSIGN_OR_RETURN(const TrainedModel trained, ModelToTrain(ranks, purpose, &config));
  const bool all_from_checkpoint = resume && config.model.method == TrainMethod::kFull;
  TEMPER_ASSIGN_OR_RETURN(
      OpenedModel model,
      OpenedModel::Open(PosixEnv(), {.model = trained.model,
                                     .base = config.model.base,
                                     .adapter = config.model.adapter,
                                     .needs_weights = purpose == Purpose::kTrain && !config.model.from_scratch &&
                                                      !all_from_checkpoint,
                                     .chat_template = chat_template,
                                     .templates_of = templates_of,
                                     .classes = ClassesFor(ranks, config, purpose),
                                     .by_name = purpose == Purpose::kPlan}));
  TEMPER_RETURN_IF_ERROR(CheckHead(model, config));
  TEMPER_RETURN_IF_ERROR(CheckBestMetric(model, config));
  TEMPER_RETURN_IF_ERROR(CheckTrainsFiles(model, config));
  SettleBalance(model.model().facts(), resume, &config);
  if (const auto& head = model.class_head(); head && head->classes.size() > 1) {
    LogInfo(fmt::format("classes     {}: {}", head->classes.size(), head->classes.ToText()));
  }
  if (data.ok() && ranks.first()) data = CheckDataFiles(PosixEnv(), config);
  if (data.ok() && ranks.first() && !model.folder().empty()) data = CheckTokenizer(PosixEnv(), model, config);
  if (purpose == Purpose::kTrain) TEMPER_RETURN_IF_ERROR(ranks.Agree(data));
  if (folder) TEMPER_RETURN_IF_ERROR(folder->CheckKeeps("base model", model.folder()));
  TEMPER_ASSIGN_OR_RETURN(RunFacts facts, facts_of ? facts_of(config) : CommonFacts(ranks, config));
  facts.model_max_seq_len = model.model().facts().max_positions;
  facts.positions_are_learned = model.model().facts().positions_are_learned;
  facts.modules_format = model.model().facts().modules_format;
  facts.experts_format = model.model().facts().experts_format;
  if (model.adapter()) {
    facts.adapter = *model.adapter();
    facts.adapter->base_model.clear();
    facts.adapter->base_revision.clear();
    // PEFT names the heads of all its families; of those here it is `score`.
    if (model.class_head()) facts.adapter->modules_to_save = NamesOfModel(facts.adapter->saved_names());
  }
  TEMPER_ASSIGN_OR_RETURN(facts.weighted_data, FirstRankFindsWeights(ranks, config));
  TEMPER_ASSIGN_OR_RETURN(ResolvedRun run, Resolve(config, facts));
  TEMPER_RETURN_IF_ERROR(CheckSettings(ranks, run.config));
  if (run.config.objective.rule->distills) {
    TEMPER_RETURN_IF_ERROR(OpenTeacher(PosixEnv(),
                                       {.teacher = run.config.objective.teacher,
                                        .base_dtype = run.config.objective.teacher_base_dtype,
                                        .dtype = run.config.model.dtype,
                                        .max_seq_len = *run.config.data.max_seq_len,
                                        .needs_weights = purpose == Purpose::kTrain,
                                        .by_name = purpose == Purpose::kPlan},
                                       run.config.model.model, &model));
    if (folder) TEMPER_RETURN_IF_ERROR(folder->CheckKeeps("teacher", model.teacher()->folder()));
  }
  if (resume) TEMPER_RETURN_IF_ERROR(resume->CheckSettings(run.config));
  if (resume && ranks.first()) TEMPER_RETURN_IF_ERROR(resume->CheckTemplate(PosixEnv(), model));
  for (const std::string& warning : run.warnings) LogWarning(warning);
  TEMPER_ASSIGN_OR_RETURN(const auto idle, IdleSettings(model.model(), run.config));
  for (const std::string& setting : idle) LogWarning(setting);
  for (const std::string& note : model.model().facts().training_notes) LogInfo("note        " + note);
  return TrainSetup{ranks,
                    std::move(run),
                    std::move(model),
                    std::move(folder),
                    std::move(resume),
                    trained.first_adapter,
                    purpose == Purpose::kPlan ? std::move(data) : OkStatus()};
}

}  // namespace

Result<TrainSetup> SetUpTraining(RunRequest request, Purpose purpose, const Ranks& ranks, const FactsOfRun& facts_of) {
  auto setup = SetUp(std::move(request), purpose, ranks, facts_of);
  TEMPER_RETURN_IF_ERROR(ranks.Agree(setup.status()));
  return setup;
}

}  // namespace temper
