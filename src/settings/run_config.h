// RunConfig: everything that defines a training run, with its defaults. `temper train` and `temper plan` fill one from
// a YAML file and the command line (config/run_options.h), complete it with Resolve, and save it with the output.
//
// A value type: it opens no file and computes nothing. Settings that depend on the model or the machine are an empty
// optional (or kAuto) until Resolve chooses them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/long_rows.h"
#include "format/lora_config.h"
#include "objective/objective.h"
#include "settings/cadence.h"
#include "settings/data_sources.h"
#include "settings/memory.h"
#include "settings/mesh.h"
#include "settings/optimizer_group.h"
#include "settings/optimizer_settings.h"
#include "settings/schedule.h"
#include "settings/value_types.h"
#include "tensor/element_format.h"

namespace temper {

enum class TrainMethod { kLora, kFull };
enum class ComputeType { kAuto, kBf16, kF32 };
// How the frozen weights of a base are kept. kAuto: as they are computed.
enum class BaseType { kAuto, kInt8, kNf4 };
enum class DeviceChoice { kAuto, kCpu, kGpu };
enum class TensorMode { k1d, k2d, k25d };

// Which turns' reasoning is trained where a chat template drops that of earlier turns. kAll: every turn as it is
// generated, with a sample of its own; kLast: one sample per conversation, in which what the template prints counts.
enum class ReasoningTurns : uint8_t { kAll, kLast };

// Which of two evaluations is the better one. kByName: as that number means.
enum class MetricOrder : uint8_t { kByName, kGreater, kLess };

// The tier of a class of values, or kAuto: the policy decides.
enum class TierChoice : uint8_t { kAuto, kDevice, kHost, kDisk };

struct RunConfig {
  struct Model {
    std::string model;                       // a model folder, adapter folder, output folder or checkpoint
    std::string base;                        // of an adapter given as `model`; empty: the one in its configuration
    std::string adapter;                     // existing adapter to train further
    std::string add_tokens;                  // a file of new tokens, or a JSON list of them; empty: none
    std::string init_lora_weights = "true";  // how adapters begin: as PEFT's values true, pissa, pissa_niter_N, olora
    bool from_scratch = false;
    TrainMethod method = TrainMethod::kLora;
    ComputeType dtype = ComputeType::kAuto;
    BaseType base_dtype = BaseType::kAuto;
    BaseType embedding_dtype = BaseType::kAuto;  // of the token embedding and the head: kAuto or kInt8
  };

  struct Objective {
    const ObjectiveRule* rule = &Sft();
    TaskSettings tasks;
    std::string reference;                          // a model to compare with, in place of the one of the start
    std::string teacher;                            // the model to learn from (ObjectiveRule::distills)
    BaseType teacher_base_dtype = BaseType::kAuto;  // how its weights are kept

    bool is(const ObjectiveRule& task) const { return rule->name == task.name; }
    // The rule as the task's settings make it.
    const ObjectiveRule& resolved_rule() const {
      const bool nll = rule->with_nll != nullptr && (tasks.*rule->pair_settings).nll_weight > 0;
      return nll ? *rule->with_nll : *rule;
    }
    bool has_pairs() const { return !rule->parts.empty(); }  // rows are answers that belong together
  };

  struct Data {
    DataSources data, eval_data;
    std::string split;                   // of folders and data sets in `data` that have several
    RowReading reading;                  // how rows are read, of all files
    double eval_fraction = 0;            // of `data`, held out
    std::optional<int64_t> max_seq_len;  // tokens of a row
    bool packing = true;
    bool pad_to_max_seq_len = false;  // rows that are not packed; else a micro-batch has the shortest length that does
    bool train_on_prompt = false;
    bool skip_bad_rows = false;
    std::string data_cache;           // the folder that keeps the tokens; empty: the output folder, for training
    std::string chat_template;        // a name or a file; empty: the model's own
    JsonObject chat_template_kwargs;  // variables for the chat template
    std::string row_template;  // makes a text of the fields of any row, instead of the formats: a file, or itself
    ReasoningTurns reasoning_turns = ReasoningTurns::kAll;
    LongRows long_rows = LongRows::kSplit;
    std::string template_date;  // YYYY-MM-DD, today's date for the chat template; saved, so that a run can be repeated
    // Not an option: whether rows have weights (data/weight_search.h: HasWeights). Resolve takes it from the facts,
    // because the compiled Program depends on it.
    bool weighted = false;
  };

  struct Batch {
    int64_t per_device_train_batch_size = 1;  // rows of max_seq_len tokens, packed
    // per_device_train_batch_size: auto, the default. A rank's step has gradient_accumulation_steps rows; how many of
    // them make a micro-batch is chosen once the run is compiled (compile/run/batch_cut.h), which sets both and clears
    // this.
    bool auto_cut = true;
    std::optional<int64_t> per_device_eval_batch_size;  // default: as for training
    int64_t gradient_accumulation_steps = 8;
  };

  struct Optimizer {
    const UpdateRule* rule = &DefaultUpdateRule();
    std::optional<double> learning_rate;
    double weight_decay = 0;
    double max_grad_norm = 1;  // 0: no clipping
    OptimizerSettings settings;
    double ema_decay = 0;   // of the moving average of trained weights; 0: none
    bool ema_eval = false;  // evaluate the average
    bool stochastic_rounding = false;
    // LoRA+ (Hayou et al. 2024): the rate of B, and as in PEFT of vectors, is this times that of A and other matrices.
    std::optional<double> lora_plus_ratio;
    std::vector<OptimizerGroup> groups;
  };

  // What is against overfitting (LoRA's dropout is with LoRA).
  struct Regularisation {
    double neftune_noise_alpha = 0;
    double label_smoothing_factor = 0;
    std::optional<double> router_aux_loss_coef;  // nullopt: as the model's config.json says
  };

  // Each lr_scheduler_type uses some of these; the rest must be empty.
  struct SchedulerKwargs {
    std::optional<double> num_cycles;
    std::optional<double> min_lr;
    std::optional<double> min_lr_rate;
    std::optional<double> min_lr_ratio;
    std::optional<double> lr_end;
    std::optional<double> power;
    std::optional<int64_t> timescale;
    std::optional<int64_t> num_decay_steps;
    std::optional<int64_t> num_stable_steps;
    RampShape warmup_type = RampShape::kLinear;
    RampShape decay_type = RampShape::kCosine;

    bool operator==(const SchedulerKwargs&) const = default;
  };

  struct Length {
    double num_train_epochs = 3;
    std::optional<int64_t> max_steps;  // wins over num_train_epochs
    ScheduleKind lr_scheduler_type = ScheduleKind::kCosine;
    std::optional<double> warmup_ratio;
    std::optional<int64_t> warmup_steps;  // wins over warmup_ratio
    SchedulerKwargs kwargs;
  };

  struct Output {
    std::string output_dir;
    std::optional<std::string> resume;  // "": the newest checkpoint of output_dir
    bool overwrite = false;
    // Steps; below 1 a part of the run (settings/cadence.h). 0: only at the end.
    double save_steps = 500;
    CadenceStrategy save_strategy = CadenceStrategy::kSteps;  // not kAuto
    std::optional<int64_t> save_total_limit;
    bool load_best_model_at_end = false;
    std::string metric_for_best_model = "eval_loss";  // settings/best_metric.h
    MetricOrder greater_is_better = MetricOrder::kByName;
    std::optional<int64_t> early_stopping_patience;  // evaluations without gain
    double early_stopping_threshold = 0;             // a gain is more than this
    bool stop_on_divergence = false;
    double logging_steps = 1;
    bool token_accuracy = false;       // beside the loss, in training and evaluation
    std::optional<double> eval_steps;  // default: save_steps, if there is evaluation data
    CadenceStrategy eval_strategy = CadenceStrategy::kAuto;
    bool tensorboard = true;
    bool profile = false;
  };

  struct Machine {
    DeviceChoice device = DeviceChoice::kAuto;
    bool graphs = true;
    bool time_products = true;
    bool measure_base = true;  // run/base_error.h
    Recompute recompute = Recompute::kAuto;
    std::optional<int64_t> recompute_blocks;  // only the first ones
    std::optional<int64_t> threads;           // per rank
    int64_t seed = 42;
    int64_t nprocs = 1;             // ranks to start on this machine
    std::string rates = "measure";  // by which choices within memory limits are made: run/rates_of_run.h
  };

  // Limits of the memory tiers, and the tiers of values (compile/memory/memory_spec.h).
  struct Memory {
    std::optional<Bytes> device, host;
    std::string disk;  // a folder for values that fit in neither
    TierPolicy policy = TierPolicy::kAuto;
    TierChoice weights = TierChoice::kAuto, gradients = TierChoice::kAuto, optimizer = TierChoice::kAuto,
               activations = TierChoice::kAuto;
    TrainedMatrices bf16_weights = TrainedMatrices::kAuto;
  };

  // Sizes of mesh axes (compile/run/mesh_options.h); sizes left open follow from the number of ranks.
  struct Mesh {
    std::optional<int64_t> dp, fsdp, cp, ep, tp;
    int64_t pp = 1;
    PipelineKind pp_schedule = PipelineKind::kOneForwardOneBackward;
    std::optional<int64_t> pp_chunks;  // default: 2 if interleaved
    IntList pp_layers;
    TensorMode tp_mode = TensorMode::k1d;
    int64_t tp_depth = 1;
    bool sequence_parallel = true;
    bool reshard_after_forward = true;
    std::optional<int64_t> gathered_blocks;
    bool overlap = true;
    GradSync grad_sync = GradSync::kAuto;
    EmbeddingMove embedding = EmbeddingMove::kAuto;
    MlpMove mlp = MlpMove::kAuto;
    TextPairs sharding;  // (regular expression, spec): compile/mesh/sharding_rules.h
  };

  // How long ranks wait for each other (device/communicator.h: Patience).
  struct Watch {
    double idle_seconds = 15, busy_seconds = 3600;
  };

  Model model;
  Objective objective;
  Data data;
  LoraConfig lora;
  Batch batch;
  Optimizer optimizer;
  Regularisation regularisation;
  Length length;
  Output output;
  Machine machine;
  Memory memory;
  Mesh mesh;
  Watch watch;

  bool evaluates() const { return !data.eval_data.empty() || data.eval_fraction > 0; }

  // The task's rule as its own and the other settings make it: Resolve sets it.
  const ObjectiveRule& resolved_rule() const {
    const ObjectiveRule& rule = objective.resolved_rule();
    return output.token_accuracy && rule.with_accuracy != nullptr ? *rule.with_accuracy : rule;
  }
};

// nullopt: as they are computed.
std::optional<ElementFormat> FormatOf(BaseType base);
// How a base is kept: as asked, or as its files hold it (`stored`) in a format that can also be asked for, which
// another one is refused for.
Result<BaseType> BaseTypeOf(BaseType asked, std::optional<ElementFormat> stored);
// Whether weights that `setting` (base_dtype, embedding_dtype) keeps so can be computed in `dtype`, which is resolved.
// Errors name the setting to change.
Status CheckKeptType(const char* setting, BaseType kept, ComputeType dtype);

// Default tokens per row, given the positions of the model.
int64_t DefaultMaxSeqLen(int64_t positions);

// Facts about the model, the machine and the data for Resolve.
struct RunFacts {
  std::string processor = "this CPU";  // in messages; `temper plan` may plan for another one
  bool has_bf16 = false;
  DeviceChoice device = DeviceChoice::kCpu;  // the kind of processor
  int64_t cpu_cores = 1;
  std::string today;                         // YYYY-MM-DD
  std::optional<int64_t> model_max_seq_len;  // max_position_embeddings
  bool positions_are_learned = false;        // in a table; a row may not be longer (OPT)
  std::optional<LoraConfig> adapter;         // configuration of the adapter to continue, without its base_model
  bool weighted_data = false;                // the run's data has weights
  std::optional<ElementFormat> modules_format, experts_format;  // as in ModelFacts
};

struct ResolvedRun {
  RunConfig config;  // complete: no kAuto; only settings that may stay absent are empty optionals
  std::map<std::string, std::string> notes;  // option name -> why it has its value
  std::vector<std::string> warnings;
};

// Chooses the settings that the user left open. The choice depends only on `config` and `facts`, and resolving the
// result again changes nothing.
Result<ResolvedRun> Resolve(const RunConfig& config, const RunFacts& facts);

// The learning-rate schedule of a run of `total_steps` steps. REQUIRES: config is resolved.
Result<Schedule> ScheduleOf(const RunConfig& config, int64_t total_steps);

// When a run logs, evaluates and saves.
struct RunCadence {
  Cadence logging, saving;            // both also at the end
  std::optional<Cadence> evaluation;  // also at the end; nullopt: never
};

// Of a run that has `total_steps` steps. REQUIRES: `config` is resolved.
RunCadence CadenceOf(const RunConfig& config, int64_t total_steps);

// Of evaluation; never kAuto. REQUIRES: `config` is resolved.
CadenceStrategy EvaluationStrategy(const RunConfig& config);

// An error if load_best_model_at_end lacks an evaluation at a checkpoint: parts of the run are rounded to steps.
Status CheckCadence(const RunConfig& config, int64_t total_steps);

// What a run of so many steps would be refused for: its schedule, its cadence. REQUIRES: `config` is resolved.
Status CheckSteps(const RunConfig& config, int64_t total_steps);

// What packing makes of a run whose length its data says.
struct PackedRows {
  double per_row = 1;         // documents, or pairs of them, in a row; 1: not packed, or not known
  int64_t steps_without = 0;  // that the run has without packing
};

// Warnings with remedies: of a run too short to learn from (fewer than 20 steps), of a warmup that is longer.
// REQUIRES: CheckSteps is OK.
std::vector<std::string> StepWarnings(const RunConfig& config, int64_t total_steps, const PackedRows& packed = {});

}  // namespace temper
