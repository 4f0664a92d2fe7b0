#include "config/run_options.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/data_option.h"
#include "config/foreign_names.h"
#include "config/group_option.h"
#include "config/optimizer_options.h"
#include "config/option_yaml.h"
#include "config/reading_options.h"
#include "config/task_options.h"
#include "config/token_rows_option.h"
#include "program/program.h"
#include "tensor/mesh.h"

namespace temper {
namespace {

const std::vector<std::string_view> kRamps = {"linear", "cosine", "1-sqrt"};

Option With(OnResume on_resume, Option option) {
  option.on_resume = on_resume;
  return option;
}

// A choice among the update rules, by name.
Choice ChoiceOfRule(const UpdateRule*& rule) {
  std::vector<std::string_view> names;
  for (const UpdateRule* known : UpdateRules()) names.push_back(known->name);
  return {.names = std::move(names),
          .get =
              [&rule] {
                const auto rules = UpdateRules();
                return static_cast<int>(std::find(rules.begin(), rules.end(), rule) - rules.begin());
              },
          .set = [&rule](int i) { rule = UpdateRules()[static_cast<size_t>(i)]; }};
}

// "; sgd: ..." of each rule that has such a text.
std::string HelpOfRules(std::string_view UpdateRule::*help) {
  std::string text;
  for (const UpdateRule* rule : UpdateRules()) {
    if (!(rule->*help).empty()) text += fmt::format("; {}: {}", rule->name, rule->*help);
  }
  return text;
}

}  // namespace

Option ChatTemplateOption(std::string& chat_template) {
  return {
      .name = "chat_template",
      .target = &chat_template,
      .help =
          "chat template for a model that has none, or instead of its own: a file (Jinja), or alpaca, chatml, gemma, "
          "llama2, llama3, mistral, phi3, phi4, zephyr",
      .value_hint = "NAME or FILE"};
}

Option ChatTemplateKwargs(JsonObject& kwargs) {
  return {"chat_template_kwargs", &kwargs, "variables for the chat template, such as {\"enable_thinking\": false}"};
}

Option RowTemplateOption(std::string& row_template) {
  return {
      .name = "row_template",
      .target = &row_template,
      .help =
          "a Jinja template that makes the text to train on from the fields of a row, which may then be any; what its "
          "{% generation %} blocks print counts, without any all of it. A file, or the template itself",
      .value_hint = "FILE"};
}

Option ReasoningTurnsOption(ReasoningTurns& turns) {
  return {"reasoning_turns", ChoiceOf(turns, {"all", "last"}),
          "where the chat template drops the reasoning of earlier turns: all trains each turn as it is generated, in a "
          "sample of its own; last makes one sample per conversation, in which what the template prints counts"};
}

std::vector<OptionGroup> RunOptionGroups(RunConfig& c) {
  constexpr OnResume kSame = OnResume::kSame, kGoesOn = OnResume::kGoesOn, kFree = OnResume::kFree,
                     kProgram = OnResume::kGoesOnWithAnotherProgram;
  const Range positive = {.at_least = 1};
  const Range not_negative = {.at_least = 0};
  const Range fraction = {.at_least = 0, .below = 1};
  RunConfig::SchedulerKwargs& kwargs = c.length.kwargs;
  std::vector<Option> optimizer = {
      With(kSame, {"optimizer", ChoiceOfRule(c.optimizer.rule), "update rule" + HelpOfRules(&UpdateRule::help)}),
      With(kGoesOn, {"learning_rate",
                     &c.optimizer.learning_rate,
                     "peak learning rate; with preferences by default 1e-5 for LoRA, 1e-6 for full",
                     {.at_least = 0},
                     "2e-4 for LoRA, 2e-5 for full"}),
      {"weight_decay", &c.optimizer.weight_decay,
       "decay of matrices, not of biases and norms" + HelpOfRules(&UpdateRule::decay_help), not_negative},
      {"max_grad_norm", &c.optimizer.max_grad_norm, "clip gradients to this norm; 0 for no clipping", not_negative},
  };
  for (Option& setting : OptimizerOptions(c.optimizer.settings)) optimizer.push_back(std::move(setting));
  optimizer.push_back(With(kSame, {"ema_decay", &c.optimizer.ema_decay,
                                   "keep a moving average of the trained weights, which is the run's result: after "
                                   "each step it is this times itself and the rest of the weights; 0 for none",
                                   fraction}));
  optimizer.push_back(With(kSame, {"stochastic_rounding", &c.optimizer.stochastic_rounding,
                                   "full fine-tuning in bf16 without f32 copies of the weights: each step rounds the "
                                   "new weights to a neighbour at random, so that small updates are not lost"}));
  optimizer.push_back({"ema_eval", &c.optimizer.ema_eval, "evaluate the average of ema_decay, not the weights"});
  optimizer.push_back({.name = "lora_plus_ratio",
                       .target = &c.optimizer.lora_plus_ratio,
                       .help = "LoRA+: the learning rate of B (and of vectors) is this times that of A",
                       .range = {.above = 0},
                       .default_text = "1",
                       .unsaid = "null"});
  optimizer.push_back(GroupsOption(c.optimizer.groups));
  optimizer.push_back({"neftune_noise_alpha", &c.regularisation.neftune_noise_alpha,
                       "noise on embeddings in training, uniform up to this / sqrt(max_seq_len * their width)",
                       not_negative});
  optimizer.push_back({"label_smoothing_factor", &c.regularisation.label_smoothing_factor,
                       "part of the loss, in training and evaluation, that counts all words alike", fraction});
  std::vector<OptionGroup> of_tasks = TaskOptionGroups(c.objective.tasks);
  optimizer.push_back(
      {.name = "router_aux_loss_coef",
       .target = &c.regularisation.router_aux_loss_coef,
       .help = "mixtures of experts: how much the loss that balances experts counts in training; 0 for none",
       .range = not_negative,
       .default_text = "that of config.json where it sets output_router_logits, else 0",
       .unsaid = "null"});
  return {
      {"Model",
       {
           With(kFree, {"model", &c.model.model,
                        "folder of a model, an adapter, an earlier output or a checkpoint; or its name in the Hugging "
                        "Face cache"}),
           With(kFree, {"base", &c.model.base, "base model of an adapter given as model, if not the one it names"}),
           With(kFree, {"adapter", &c.model.adapter, "existing PEFT adapter to train further"}),
           With(kFree,
                {.name = "add_tokens",
                 .target = &c.model.add_tokens,
                 .help = "new tokens: a file with one a line (or a JSON list); OUTPUT_DIR-base gets the model with "
                         "rows for them, which are trained beside an adapter",
                 .value_hint = "FILE"}),
           {"from_scratch", &c.model.from_scratch, "train from config.json with random weights (method: full)"},
           TaskOption(c.objective.rule),
           With(kFree, ReferenceOption(c.objective.reference,
                                       "in place of the one of the start; scored once, before the first step")),
           With(kFree, TeacherOption(c.objective.teacher)),
           TeacherTypeOption(c.objective.teacher_base_dtype),
           {"method", ChoiceOf(c.model.method, {"lora", "full"}), "train a LoRA adapter, or every weight"},
           {.name = "train_modules",
            .target = &c.lora.modules_to_save,
            .help =
                "modules to train in full beside the adapter, such as embed_tokens,lm_head: those whose names end so "
                "(PEFT's modules_to_save)",
            .unsaid = "[]"},
           {"dtype",
            ChoiceOf(c.model.dtype, {"auto", "bf16", "f32"}),
            "type of weights and activations in the step; sums are always f32",
            {},
            "bf16 if the processor has it, else f32"},
           {"base_dtype",
            ChoiceOf(c.model.base_dtype, {"auto", "int8", "nf4"}),
            "how LoRA keeps the weights of the base's linear modules and experts: int8 takes half of bf16's memory, "
            "with "
            "a scale per row; nf4 little more than a quarter (QLoRA)",
            {},
            "as computed"},
           {"embedding_dtype",
            ChoiceOf(c.model.embedding_dtype, {"auto", "int8"}),
            "how LoRA keeps the token embedding and the head: int8 takes half of bf16's memory, with a scale per word",
            {},
            "as computed"},
       }},
      {"Data",
       {
           DataOption("data", c.data.data,
                      "training rows: .jsonl, .json, .csv, .tsv, .parquet, .arrow or .txt, also .gz and .zst; a folder "
                      "of such "
                      "files or "
                      "a pattern ('data/*.jsonl'); or the name of a data set in the Hugging Face cache. Repeat it for "
                      "several files. "
                      "FILE:passes=0.5,max_samples=1000: an epoch sees half of the samples of its first 1000 rows",
                      /*has_passes=*/true),
           With(kGoesOn,
                DataOption("eval_data", c.data.eval_data, "held-out rows to evaluate on, as data: FILE[:max_samples=N]",
                           /*has_passes=*/false)),
           {"split",
            &c.data.split,
            "train, test, ...: of a folder or a data set with several splits, the one to read from data; eval_data "
            "names "
            "its own (FOLDER:split=test)",
            {},
            "train"},
           ColumnsOption(c.data.reading.columns),
           RolesOption(c.data.reading.roles),
           SeparatorOption(c.data.reading.separator),
           {"eval_fraction", &c.data.eval_fraction, "part of data to hold out, if there is no eval_data", fraction},
           {"max_seq_len",
            &c.data.max_seq_len,
            "tokens per row; what becomes of longer ones: long_rows",
            {.at_least = 2},
            "2048, or the model's if that is less"},
           LongRowsOption(c.data.long_rows),
           {"packing", &c.data.packing, "fill rows with several documents, isolated from each other"},
           With(kFree, {"pad_to_max_seq_len", &c.data.pad_to_max_seq_len,
                        "with packing: false: rows of one length, not the shortest of a few that holds a "
                        "micro-batch; for comparisons of speed and bits"}),
           {"train_on_prompt", &c.data.train_on_prompt, "compute the loss on prompts too, not only on completions"},
           {"skip_bad_rows", &c.data.skip_bad_rows, "count and skip rows that cannot be read, instead of stopping"},
           With(kFree, {.name = "data_cache",
                        .target = &c.data.data_cache,
                        .help = "folder that keeps the data's tokens for the next start; runs may share it",
                        .default_text = "output_dir"}),
           With(kFree, ChatTemplateOption(c.data.chat_template)),  // checked by content
           ChatTemplateKwargs(c.data.chat_template_kwargs),
           With(kFree, RowTemplateOption(c.data.row_template)),  // checked by content
           ReasoningTurnsOption(c.data.reasoning_turns),
           {.name = "template_date",
            .target = &c.data.template_date,
            .help = "today's date for the chat template",
            .default_text = "today; saved with the run",
            .value_hint = "YYYY-MM-DD"},
       }},
      std::move(of_tasks[0]),
      std::move(of_tasks[1]),
      std::move(of_tasks[2]),
      {"LoRA (names and meaning as in PEFT)",
       {
           {"lora.r", &c.lora.r, "rank", positive},
           {"lora.alpha", &c.lora.alpha, "scaling: alpha / r times the adapter's output", {.above = 0}},
           With(kProgram, {"lora.dropout", &c.lora.dropout, "dropout of the adapter's input", fraction}),
           {"lora.target_modules", &c.lora.target_modules, "all-linear, a list of names, or a regular expression"},
           {.name = "lora.target_parameters",
            .target = &c.lora.target_parameters,
            .help = "parameters of modules that are not linear, such as the matrices of experts",
            .unsaid = "[]"},
           {"lora.exclude_modules", &c.lora.exclude_modules, "names or a regular expression to leave out"},
           {"lora.layers_to_transform",
            &c.lora.layers_to_transform,
            "numbers of the only layers with adapters",
            {.at_least = 0}},
           {"lora.layers_pattern", &c.lora.layers_pattern,
            "the list of modules that these numbers count in, such as layers"},
           {"lora.use_rslora", &c.lora.use_rslora, "scale by alpha / sqrt(r)"},
           {.name = "lora.use_dora",
            .target = &c.lora.use_dora,
            .help = "DoRA: train the norm of each row of a weight, too",
            .unsaid = "false"},
           With(kSame,
                {.name = "lora.init_lora_weights",
                 .target = &c.model.init_lora_weights,
                 .help = "how adapters begin, as in PEFT: true (B is 0), pissa, pissa_niter_N (as pissa), olora; of "
                         "the last three OUTPUT_DIR-base gets the model without what they begin as",
                 .value_hint = "HOW"}),
           TokenRowsOption(c.lora.trainable_token_indices),
           {.name = "lora.ensure_weight_tying",
            .target = &c.lora.ensure_weight_tying,
            .help = "train_modules leaves a head that is tied to the embeddings tied",
            .unsaid = "false"},
           {"lora.rank_pattern", &c.lora.rank_pattern, "ranks for some modules, such as {q_proj: 8}", positive},
           {"lora.alpha_pattern", &c.lora.alpha_pattern, "alphas for some modules, such as {q_proj: 16}", {.above = 0}},
       }},
      {"Batch and length",
       {
           With(kProgram,
                {"per_device_train_batch_size", NumberOrAuto{&c.batch.per_device_train_batch_size, &c.batch.auto_cut},
                 "rows per micro-batch; auto: a step keeps its rows (gradient_accumulation_steps on each "
                 "rank), and as many of them make a micro-batch as fit and are fastest by estimate",
                 positive}),
           With(kFree, {"per_device_eval_batch_size", &c.batch.per_device_eval_batch_size,
                        "rows per micro-batch in evaluation", positive, "as for training"}),
           With(kProgram, {"gradient_accumulation_steps", &c.batch.gradient_accumulation_steps,
                           "micro-batches per step", positive}),
           {"num_train_epochs",
            &c.length.num_train_epochs,
            "passes over the data; a fraction is allowed",
            {.above = 0}},
           {"max_steps", &c.length.max_steps, "steps of the run; overrides num_train_epochs", {.at_least = -1}},
       },
       kGoesOn},
      {"Optimizer and loss", std::move(optimizer), kProgram},
      {"Learning-rate schedule (as in transformers)",
       {
           {"lr_scheduler_type",
            ChoiceOf(c.length.lr_scheduler_type,
                     {"linear", "cosine", "cosine_with_min_lr", "cosine_with_restarts", "polynomial", "inverse_sqrt",
                      "constant", "constant_with_warmup", "warmup_stable_decay"}),
            "shape of the schedule"},
           {"warmup_ratio",
            &c.length.warmup_ratio,
            "fraction of the steps for warmup",
            {.at_least = 0, .at_most = 1},
            "0.03; 0 for constant"},
           {"warmup_steps", &c.length.warmup_steps, "steps of warmup; overrides warmup_ratio", not_negative},
           {"lr_scheduler_kwargs.num_cycles",
            &kwargs.num_cycles,
            "waves of the cosine; cosine_with_restarts: falls, each from the peak",
            {.above = 0},
            "0.5; 1 for restarts"},
           {"lr_scheduler_kwargs.lr_end", &kwargs.lr_end, "polynomial: the learning rate at the end", not_negative,
            "1e-7"},
           {"lr_scheduler_kwargs.power", &kwargs.power, "polynomial: exponent of the fall", {.above = 0}, "1"},
           {"lr_scheduler_kwargs.timescale", &kwargs.timescale,
            "inverse_sqrt: the rate falls with the square root of steps / timescale", positive,
            "warmup_steps, or 10000 without warmup"},
           {"lr_scheduler_kwargs.min_lr", &kwargs.min_lr, "cosine_with_min_lr: the lowest learning rate", not_negative},
           {"lr_scheduler_kwargs.min_lr_rate",
            &kwargs.min_lr_rate,
            "cosine_with_min_lr: the same, as a part of learning_rate",
            {.at_least = 0, .at_most = 1}},
           {"lr_scheduler_kwargs.min_lr_ratio",
            &kwargs.min_lr_ratio,
            "warmup_stable_decay: the lowest, as a part of learning_rate",
            {.at_least = 0, .at_most = 1},
            "0"},
           {"lr_scheduler_kwargs.num_decay_steps", &kwargs.num_decay_steps, "warmup_stable_decay: steps of the decay",
            not_negative},
           {"lr_scheduler_kwargs.num_stable_steps", &kwargs.num_stable_steps,
            "warmup_stable_decay: steps at learning_rate", not_negative, "the rest of the run"},
           {"lr_scheduler_kwargs.warmup_type", ChoiceOf(kwargs.warmup_type, kRamps), "warmup_stable_decay: rise"},
           {"lr_scheduler_kwargs.decay_type", ChoiceOf(kwargs.decay_type, kRamps), "warmup_stable_decay: fall"},
       },
       kGoesOn},
      {"Output",
       {
           With(kFree, {"output_dir", &c.output.output_dir, "folder for checkpoints, metrics and the result"}),
           With(kFree, {"resume", OptionalText{&c.output.resume},
                        "continue from the newest checkpoint of output_dir, or from this one"}),
           With(kFree, {"overwrite", &c.output.overwrite, "delete the files of an earlier run in output_dir"}),
           {"logging_steps",
            &c.output.logging_steps,
            "steps between rows of metrics.jsonl; below 1: this part of the run's steps",
            {.above = 0}},
           With(kProgram, {.name = "token_accuracy",
                           .target = &c.output.token_accuracy,
                           .help = "task sft: report the share of predicted tokens that the model ranks first, in "
                                   "training and evaluation (TRL's mean_token_accuracy)",
                           .unsaid = "false"}),
           {"eval_strategy",
            ChoiceOf(c.output.eval_strategy, {"steps", "epoch", "no", "auto"}),
            "when to evaluate: every eval_steps, after each epoch (both also at the end), or never",
            {},
            "steps if eval_steps is set, else as save_strategy"},
           {"eval_steps",
            &c.output.eval_steps,
            "steps between evaluations (one more comes at the end); below 1: this part of the run's steps",
            {.above = 0},
            "save_steps"},
           {"save_strategy", ChoiceOf(c.output.save_strategy, {"steps", "epoch", "no"}),
            "when to save a checkpoint: every save_steps, after each epoch (both also at the end), or at the end only"},
           {"save_steps", &c.output.save_steps,
            "steps between checkpoints; below 1: this part of the run's steps; 0 for one at the end only",
            not_negative},
           {"save_total_limit", &c.output.save_total_limit, "checkpoints to keep; the best one is always kept",
            positive},
           {"load_best_model_at_end", &c.output.load_best_model_at_end,
            "the result is the checkpoint with the best metric_for_best_model, not the last"},
           {.name = "metric_for_best_model",
            .target = &c.output.metric_for_best_model,
            .help = "what evaluations are compared by, a number that they report: eval_loss, eval_rewards/accuracies, "
                    "eval_accuracy",
            .unsaid = "eval_loss"},
           {.name = "greater_is_better",
            .target = ChoiceOf(c.output.greater_is_better, {"auto", "true", "false"}),
            .help = "whether more of metric_for_best_model is better",
            .default_text = "by its name: less of losses, kl and rewards/rejected, more of others",
            .unsaid = "auto"},
           {"early_stopping_patience", &c.output.early_stopping_patience,
            "end the run after this many evaluations in a row without a better metric_for_best_model", positive,
            "never"},
           {"early_stopping_threshold", &c.output.early_stopping_threshold,
            "how much better than the best so far an evaluation must be for early_stopping_patience", not_negative},
           {"stop_on_divergence", &c.output.stop_on_divergence,
            "end the run, with exit code 3, when its loss stays above that of its first steps, instead of warning"},
           With(kFree, {"tensorboard", &c.output.tensorboard, "write TensorBoard events to output_dir/runs"}),
           With(kFree, {"profile", &c.output.profile, "write a Chrome trace of instructions to output_dir"}),
       },
       kGoesOn},
      {"Machine",
       {
           {"device",
            ChoiceOf(c.machine.device, {"auto", "cpu", "gpu"}),
            "processor to compute on",
            {},
            "gpu if one is found, else cpu"},
           {"graphs", &c.machine.graphs, "on a GPU: launch a segment's kernels as one recorded graph, not one by one"},
           {"time_products", &c.machine.time_products,
            "on a GPU: time eight algorithms of the library for each matrix product before the first step and take the "
            "fastest, instead of the library's first choice; a checkpoint keeps them"},
           {"measure_base", &c.machine.measure_base,
            "base_dtype int8 or nf4, on one rank's CPU: say before the first step how far the base's logits are from "
            "those of the model's files, which are read twice more"},
           {"memory.recompute", ChoiceOf(c.machine.recompute, {"auto", "none", "selective", "block"}),
            "recompute activations in the backward pass to save memory: selective: cheap ones (norms, activations, "
            "dropout); block: all of a block; auto: the fastest within memory.device, if that is set"},
           {"memory.recompute_blocks", &c.machine.recompute_blocks,
            "recompute only in this many blocks, from the first on", positive, "all"},
           {"memory.device",
            &c.memory.device,
            "limit of device memory; on a CPU, of the arena that kernels work in",
            {},
            "all of it"},
           {"memory.host",
            &c.memory.host,
            "limit of host memory for values that do not fit on the device",
            {},
            "no limit"},
           {.name = "memory.disk",
            .target = &c.memory.disk,
            .help =
                "folder for values that fit neither on the device nor on the host; frozen weights are read from the "
                "model's files",
            .value_hint = "FOLDER"},
           {.name = "memory.tiers",
            .target = ChoiceOf(c.memory.policy, {"auto", "device", "host"}),
            .help = "auto: values that gain most on the device, the rest on the host; host: weights, gradients and "
                    "optimizer states on the host",
            .former = "memory.placement"},
           {"memory.bf16_weights", ChoiceOf(c.memory.bf16_weights, {"auto", "stored", "cast"}),
            "bf16 matrices of a full run: stored beside their f32 masters, or cast from them for each use, which takes "
            "2 bytes a parameter less; auto: stored if that fits, else what is faster"},
           {"memory.weights", ChoiceOf(c.memory.weights, {"auto", "device", "host", "disk"}), "tier of weights"},
           {"memory.gradients", ChoiceOf(c.memory.gradients, {"auto", "device", "host", "disk"}),
            "tier of gradients between micro-batches"},
           {"memory.optimizer", ChoiceOf(c.memory.optimizer, {"auto", "device", "host", "disk"}),
            "tier of optimizer states; the host updates those that are not on the device"},
           {"memory.activations", ChoiceOf(c.memory.activations, {"auto", "device", "host"}),
            "tier of activations between forward and backward"},
           {.name = "rates",
            .target = &c.machine.rates,
            .help =
                "speeds by which a run chooses, if memory is short, what to recompute and what to keep in which tier; "
                "measure: this machine's (from temper doctor --calibrate, or measured for a second); typical: a "
                "typical machine's; or the name or file of a cluster",
            .value_hint = "RATES"},
           {"threads",
            &c.machine.threads,
            "compute threads per rank",
            {.at_least = 1, .at_most = kMaxThreads},
            "the cores, shared by nprocs"},
           With(kSame, {"seed", &c.machine.seed, "seed of initial weights, order of rows and dropout", not_negative}),
           {"nprocs", &c.machine.nprocs, "ranks to start on this machine", {.at_least = 1, .at_most = kMostRanks}},
       },
       kFree},
      {"Mesh: how ranks share the work (--mesh fsdp=4,tp=2 sets several)",
       {
           {"mesh.pp", &c.mesh.pp, "stages of a pipeline, each with some of the blocks", positive},
           {"mesh.pp_schedule", ChoiceOf(c.mesh.pp_schedule, {"1f1b", "interleaved", "zero_bubble", "gpipe"}),
            "order in which stages work on micro-batches; interleaved: several runs of blocks per stage; zero_bubble: "
            "gradients of weights fill the waiting time"},
           {"mesh.pp_chunks", &c.mesh.pp_chunks, "interleaved: runs of blocks per stage", {.at_least = 2}, "2"},
           {"mesh.pp_layers", &c.mesh.pp_layers, "blocks per stage (interleaved: per run), such as [5, 7]",
            not_negative, "balanced by cost"},
           {"mesh.dp", &c.mesh.dp, "copies of the whole model, each with its own rows", positive, "1"},
           {"mesh.fsdp", &c.mesh.fsdp, "ranks with their own rows that shard weights, gradients and optimizer states",
            positive, "the ranks that the other axes leave"},
           {"mesh.cp", &c.mesh.cp, "ranks that split the tokens of the same (long) rows, and shard what fsdp shards",
            positive, "1"},
           {"mesh.ep", &c.mesh.ep,
            "ranks with their own rows that deal a mixture's experts among them, and shard what fsdp shards", positive,
            "1"},
           {"mesh.tp", &c.mesh.tp, "ranks that split heads, ffn and vocabulary for the same rows", positive, "1"},
           {"mesh.tp_mode", ChoiceOf(c.mesh.tp_mode, {"1d", "2d", "2.5d"}),
            "1d: tp ranks split columns or rows of weights; 2d, 2.5d: both, and activations"},
           {"mesh.tp_depth", &c.mesh.tp_depth, "2.5d: layers of tp ranks, each with its own rows", positive},
           {"mesh.sequence_parallel", &c.mesh.sequence_parallel,
            "tp 1d: each rank computes norms and residuals for some of the tokens"},
           {"mesh.reshard_after_forward", &c.mesh.reshard_after_forward,
            "fsdp: gather weights again for the backward, instead of keeping them"},
           {"mesh.gathered_blocks", &c.mesh.gathered_blocks,
            "fsdp: keep weights gathered in this many last blocks: less communication, more memory", not_negative,
            "1; 0 without mesh.overlap"},
           {"mesh.overlap", &c.mesh.overlap,
            "overlap communication of weights, gradients, keys and tp's backward with computation"},
           {"mesh.grad_sync", ChoiceOf(c.mesh.grad_sync, {"auto", "micro_batch", "step"}),
            "fsdp: reduce gradients after every micro-batch, or once per step, for the memory of whole gradients"},
           {"mesh.embedding", ChoiceOf(c.mesh.embedding, {"auto", "table", "rows"}),
            "fsdp: gather the embedding's table, or look up all tokens in each part of it and sum"},
           {"mesh.mlp", ChoiceOf(c.mesh.mlp, {"auto", "activations", "weights"}),
            "tp 1d: gather tokens for the feed-forward part of a block and sum its results, or gather its weights"},
           {.name = "mesh.sharding",
            .target = &c.mesh.sharding,
            .help = "how tensors are split, before the default rules (plan --sharding shows all): the first pattern "
                    "that matches a part of the name decides",
            .value_hint = "[[REGEX, SPEC], ...]",
            .former = "placement"},
           {"watch.idle_seconds",
            &c.watch.idle_seconds,
            "seconds that a rank may be idle while others wait for it; then the run ends",
            {.at_least = 1}},
           {"watch.busy_seconds",
            &c.watch.busy_seconds,
            "seconds that a rank may be busy while others wait for it; then the run ends",
            {.at_least = 1}},
       },
       kFree},
  };
}

OptionSet RunOptions(RunConfig& config) {
  return OptionSet(RunOptionGroups(config), ForeignNames());
}

std::string PrintRunConfig(const RunConfig& config, const std::map<std::string, std::string>& notes) {
  RunConfig copy = config;
  return PrintYamlOptions(RunOptions(copy), notes);
}

Result<RunConfig> ParseRunConfig(std::string_view yaml, const std::string& file) {
  RunConfig config;
  TEMPER_RETURN_IF_ERROR(ReadYamlOptions(yaml, file, RunOptions(config)));
  return config;
}

bool operator==(const RunConfig& a, const RunConfig& b) {
  return PrintRunConfig(a) == PrintRunConfig(b);
}

namespace {

// Calls body(option of a, option of b, what a resumed run may do with it) for all options with different values.
template <class Body>
void ForDifferences(const RunConfig& a, const RunConfig& b, const Body& body) {
  RunConfig first = a, second = b;
  const OptionSet first_options = RunOptions(first), second_options = RunOptions(second);
  for (const OptionGroup& group : first_options.groups()) {
    for (const Option& option : group.options) {
      const Option& other = *second_options.Find(option.name);
      if (ValueAsYaml(option) != ValueAsYaml(other)) body(option, other, option.on_resume.value_or(group.on_resume));
    }
  }
}

}  // namespace

std::vector<OptionDifference> Differences(const RunConfig& a, const RunConfig& b, OnResume on_resume) {
  std::vector<OptionDifference> differences;
  ForDifferences(a, b, [&](const Option& mine, const Option& theirs, OnResume may) {
    const bool goes_on = on_resume == OnResume::kGoesOn && may == OnResume::kGoesOnWithAnotherProgram;
    if (may != on_resume && !goes_on) return;
    // Files may have moved; what they hold is checked apart.
    if (mine.name == "data" && SameUse(a.data.data, b.data.data)) return;
    if (mine.name == "eval_data" && SameUse(a.data.eval_data, b.data.eval_data)) return;
    differences.push_back({.name = mine.name, .a = ValueAsYaml(mine), .b = ValueAsYaml(theirs)});
  });
  return differences;
}

std::vector<OptionDifference> DifferencesOfTask(const RunConfig& a, const RunConfig& b) {
  const std::string section = std::string(a.objective.rule->name) + ".";
  std::vector<OptionDifference> differences;
  ForDifferences(a, b, [&](const Option& mine, const Option& theirs, OnResume) {
    if (!mine.name.starts_with(section) && mine.name != "reference" && !mine.name.starts_with("teacher")) return;
    differences.push_back({.name = mine.name, .a = ValueAsYaml(mine), .b = ValueAsYaml(theirs)});
  });
  return differences;
}

RunConfig SettingsOfAllRanks(const RunConfig& config) {
  RunConfig common = config;
  common.machine.threads.reset();
  return common;
}

std::string DescribeDifferences(const RunConfig& a, const RunConfig& b) {
  std::string text;
  ForDifferences(SettingsOfAllRanks(a), SettingsOfAllRanks(b), [&](const Option& mine, const Option& theirs, OnResume) {
    text += fmt::format("{}{} {}, not {}", text.empty() ? "" : "; ", mine.name, ValueAsYaml(mine), ValueAsYaml(theirs));
  });
  return text;
}

}  // namespace temper
