#include "config/foreign_names.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/foreign_objective.h"
#include "config/names_without_option.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

constexpr ForeignTool kAxolotl = ForeignTool::kAxolotl, kTrl = ForeignTool::kTrl;

// Names whose option, or whose value, differs from ours.
std::vector<ForeignName> NamesWithOptions() {
  const char* const fp16 = "fp16 needs loss scaling and is not supported; use dtype: bf16 or f32";
  const char* const paths_of_files = "the paths of files";
  const char* const opposite = "it means the opposite: completions only is train_on_prompt: false, the default";
  const char* const nf4 = "base_dtype: nf4, whose scales are always quantised, too";
  const char* const only_nf4 = "4 bits are always nf4 (base_dtype: nf4)";
  const char* const two_types = "only base_dtype: int8 and nf4 are supported";
  const char* const types = "only bf16 and f32 are supported";
  const char* const methods = "only lora and full are supported";
  const char* const of_file = "of each file: {path: FILE, max_samples: N}";
  const char* const template_file = "a file, or the name of one of Temper's templates";
  const char* const texts = "texts of tokens are expected";
  const char* const beginnings = "adapters begin as lora.init_lora_weights says: true, pissa or olora";
  const char* const variable = "a variable of the chat template, as in chat_template_kwargs: {enable_thinking: false}";
  const char* const strategies = "steps, epoch or no";
  const char* const part = "a part of the run: 1 / (times an epoch * epochs)";
  const char* const on_machine = "ranks on this machine; on a cluster the launcher decides";
  const char* const ranks = "several ranks shard weights, gradients and states by default; mesh.fsdp is their number";
  const char* const fraction = "a fraction of the rows, such as 0.05";
  const char* const blocks = "what fits is not recomputed; memory.recompute is auto, none, selective or block";
  const char* const of_schedule = "with lr_scheduler_type: cosine_with_min_lr";
  const char* const own_tokenizer = "the tokenizer is that of the model's folder: put its files there";
  const char* const packed_evaluation = "evaluation packs where training does";
  const char* const rules = "temper train --help lists those that are supported";
  return {
      // Model and method.
      {"model_name_or_path", "model", ""},
      {"base_model", "model", ""},
      {"model_name", "model", ""},
      {"pretrained_model_name_or_path", "model", ""},
      {"model_path", "model", ""},
      {"base_model_name_or_path", "base", "the base of an adapter; a model to train from is 'model'"},
      {"adapter_name_or_path", "adapter", ""},
      {"lora_model_dir", "adapter", ""},
      {"adapter", "method", "lora, or full by leaving it out", "lora=lora qlora=lora", kAxolotl},
      {"finetuning_type", "method", methods},
      {"train_type", "method", methods},
      {"peft_type", "method", methods},
      {"use_peft", "method", "method: lora", "true=lora false=full"},
      {"full_finetuning", "method", "method: full", "true=full false=lora"},
      {"train_from_scratch", "from_scratch", ""},
      {"bf16", "dtype", "dtype: bf16", "true=bf16 full=bf16 auto=auto false=f32"},
      {"bfloat16", "dtype", "dtype: bf16", "true=bf16 false="},
      {"pure_bf16", "dtype", "dtype: bf16; the optimizer keeps f32 weights, but with stochastic_rounding",
       "true~bf16 false="},
      {"dtype", "dtype", types, "@loaded_dtype"},
      {"torch_dtype", "dtype", types, "@loaded_dtype"},
      {"compute_dtype", "dtype", types, "@loaded_dtype"},
      {"precision", "dtype", types, "bf16=bf16 fp32=f32"},
      {"mixed_precision", "dtype", types, "bf16=bf16 no=f32"},
      {"fp32", "dtype", "dtype: f32", "true=f32 false="},
      {"float32", "dtype", "dtype: f32", "true=f32 false="},
      {"fp16", "dtype", fp16, "false!"},
      {"float16", "dtype", fp16, "false!"},
      {"load_in_8bit", "base_dtype", "base_dtype: int8", "true=int8 false="},
      {"load_in_4bit", "base_dtype", nf4, "true=nf4 false="},
      {"load_in_4bit", "base_dtype", nf4, "true~nf4 false=", kTrl},  // its scales stay f32 by default
      {"quantize_base", "base_dtype", nf4, "true=nf4 false="},
      {"quantization_bit", "base_dtype", "8 is base_dtype: int8, 4 is base_dtype: nf4; others are not supported",
       "8=int8 4=nf4"},
      {"quantization", "base_dtype", two_types, "int8=int8 nf4=nf4"},
      {"bnb_4bit_quant_type", "base_dtype", only_nf4, "nf4="},
      {"quantization_type", "base_dtype", only_nf4, "nf4="},
      {"bnb_4bit_use_double_quant", "base_dtype", nf4, "true= false~"},
      {"use_bnb_nested_quant", "base_dtype", nf4, "true= false~"},
      {"double_quantization", "base_dtype", nf4, "true= false~"},
      // Data.
      {"dataset", "data", paths_of_files, "@llama_factory_data"},
      {"eval_dataset", "eval_data", paths_of_files, "@llama_factory_data"},
      {"datasets", "data", paths_of_files, "@list_of_data"},
      {"test_datasets", "eval_data", paths_of_files, "@list_of_data"},
      {"pretraining_dataset", "data", paths_of_files, "@list_of_data"},
      {"dataset_name", "data", paths_of_files, "@dataset_name"},
      {"train_file", "data", ""},
      {"train_data", "data", ""},
      {"data_path", "data", ""},
      {"validation_file", "eval_data", ""},
      {"val_data", "eval_data", ""},
      {"val_set_size", "eval_fraction", fraction, "@held_out"},
      {"val_size", "eval_fraction", fraction, "@held_out"},
      {"test_size", "eval_fraction", fraction, "@held_out"},
      {"test_split_size", "eval_fraction", fraction, "@held_out"},
      {"max_samples", "data", of_file, "@max_samples"},
      {"max_train_samples", "data", of_file, "@max_samples"},
      {"max_eval_samples", "eval_data", of_file, "@max_samples"},
      {"dataset_text_field", "columns", "columns: {text: FIELD}", "@text_field"},
      {"dataset_prepared_path", "data_cache", ""},
      {"tokenized_path", "data_cache", ""},
      {"template", "chat_template", template_file, "@template"},
      {"chat_template", "chat_template", template_file, "@template"},
      {"custom_chat_template", "chat_template", template_file, "@template"},
      {"chat_template_path", "chat_template", template_file, "@template_file"},
      {"chat_template_jinja", "chat_template", template_file, "@template_file"},
      {"enable_thinking", "chat_template_kwargs", variable, "@template_variable"},
      {"preserve_thinking", "chat_template_kwargs", variable, "@template_variable"},
      {"cutoff_len", "max_seq_len", ""},
      {"max_length", "max_seq_len", ""},
      {"max_seq_length", "max_seq_len", ""},
      {"sequence_len", "max_seq_len", ""},
      {"seq_len", "max_seq_len", ""},
      {"seq_length", "max_seq_len", ""},
      {"block_size", "max_seq_len", ""},
      {"model_max_length", "max_seq_len", ""},
      {"max_packed_sequence_len", "max_seq_len", ""},
      {"sample_packing", "packing", "packed documents are always isolated"},
      {"neat_packing", "packing", "packed documents are always isolated", "true=true false="},
      {"train_on_inputs", "train_on_prompt", ""},
      {"completion_only_loss", "train_on_prompt", opposite, "true=false false=true"},
      {"train_on_completions", "train_on_prompt", opposite, "true=false false=true"},
      {"assistant_only_loss", "train_on_prompt", opposite, "true=false false=true"},
      // LoRA.
      {"lora_r", "lora.r", ""},
      {"lora_rank", "lora.r", ""},
      {"rank", "lora.r", ""},
      {"lora_alpha", "lora.alpha", ""},
      {"lora_dropout", "lora.dropout", ""},
      {"lora_target_modules", "lora.target_modules", "", "@modules"},
      {"lora_target", "lora.target_modules", "", "@modules"},
      {"target_modules", "lora.target_modules", "", "@modules"},
      {"lora_target_parameters", "lora.target_parameters", ""},
      {"target_parameters", "lora.target_parameters", ""},
      {"lora_target_linear", "lora.target_modules", "all-linear, the default", "true=all-linear false="},
      {"lora_rank_pattern", "lora.rank_pattern", ""},
      {"lora_alpha_pattern", "lora.alpha_pattern", ""},
      {"layers_to_transform", "lora.layers_to_transform", ""},
      {"layers_pattern", "lora.layers_pattern", ""},
      {"peft_layers_to_transform", "lora.layers_to_transform", ""},
      {"peft_layers_pattern", "lora.layers_pattern", ""},
      {"lora_modules_to_save", "train_modules", "", "@saved_modules"},
      {"modules_to_save", "train_modules", "", "@saved_modules"},
      {"additional_target", "train_modules", "", "@saved_modules"},
      {"ensure_weight_tying", "lora.ensure_weight_tying", ""},
      {"peft_ensure_weight_tying", "lora.ensure_weight_tying", ""},
      {"loraplus_lr_ratio", "lora_plus_ratio", ""},
      {"use_rslora", "lora.use_rslora", ""},
      {"peft_use_rslora", "lora.use_rslora", ""},
      {"use_dora", "lora.use_dora", ""},
      {"peft_use_dora", "lora.use_dora", ""},
      // Batch and length.
      {"micro_batch_size", "per_device_train_batch_size", ""},
      {"batch_size", "per_device_train_batch_size", ""},
      {"train_batch_size", "per_device_train_batch_size", ""},
      {"per_gpu_train_batch_size", "per_device_train_batch_size", ""},
      {"eval_batch_size", "per_device_eval_batch_size", ""},
      {"per_gpu_eval_batch_size", "per_device_eval_batch_size", ""},
      {"grad_accum", "gradient_accumulation_steps", ""},
      {"accumulate_grad_batches", "gradient_accumulation_steps", ""},
      {"gradient_accumulation", "gradient_accumulation_steps", ""},
      {"num_epochs", "num_train_epochs", ""},
      {"epochs", "num_train_epochs", ""},
      {"max_epochs", "num_train_epochs", ""},
      {"max_steps", "max_steps", "a number of steps", "@max_steps"},
      {"steps", "max_steps", ""},
      {"max_steps_per_epoch", "max_steps", "for the whole run"},
      // Optimizer and schedule.
      {"lr", "learning_rate", ""},
      {"label_smoothing", "label_smoothing_factor", ""},
      {"noisy_embedding_alpha", "neftune_noise_alpha", ""},
      {"moe_aux_loss_coef", "router_aux_loss_coef", ""},
      {"wd", "weight_decay", ""},
      {"grad_clip", "max_grad_norm", ""},
      {"clip_grad_norm", "max_grad_norm", ""},
      {"gradient_clip_val", "max_grad_norm", ""},
      {"max_norm", "max_grad_norm", ""},
      {"optim", "optimizer", rules, "@optimizer"},
      {"optimizer", "optimizer", rules, "@optimizer"},
      {"use_muon", "optimizer", "", "@use_muon"},
      {"scheduler", "lr_scheduler_type", "", "@schedule"},
      {"lr_scheduler", "lr_scheduler_type", "", "@schedule"},
      {"lr_scheduler_type", "lr_scheduler_type", "", "@schedule"},
      {"lr_scheduler_kwargs", "lr_scheduler_type", "", "@schedule_kwargs"},
      {"warmup", "warmup_ratio", "a fraction of the steps; a number of steps is warmup_steps"},
      {"warmup_steps", "warmup_steps", "", "@warmup"},
      {"num_warmup_steps", "warmup_steps", "", "@warmup"},
      {"min_lr", "lr_scheduler_kwargs.min_lr", of_schedule},
      {"min_lr_rate", "lr_scheduler_kwargs.min_lr_rate", of_schedule},
      {"cosine_min_lr_ratio", "lr_scheduler_kwargs.min_lr_rate", of_schedule},
      {"num_decay_steps", "lr_scheduler_kwargs.num_decay_steps", ""},
      // Output.
      {"output", "output_dir", ""},
      {"out_dir", "output_dir", ""},
      {"save_dir", "output_dir", ""},
      {"overwrite_output_dir", "overwrite", "it deletes an earlier run's files", "@overwrite"},
      {"resume_from_checkpoint", "resume", "other tools' checkpoints cannot be continued", "@resume"},
      {"auto_resume_from_checkpoints", "resume", "add --resume to the command that continues a run", "@resume"},
      {"logging_steps", "logging_steps", "", "@steps"},
      {"eval_steps", "eval_steps", "", "@steps"},
      {"save_every", "save_steps", ""},
      {"save_steps", "save_steps", "", "@steps"},
      {"do_eval", "eval_data", "evaluation runs if there is eval data", "*="},
      {"eval_strategy", "eval_strategy", strategies, "steps=steps epoch=epoch no=no"},
      {"evaluation_strategy", "eval_strategy", strategies, "steps=steps epoch=epoch no=no"},
      {"save_strategy", "save_strategy", "steps, epoch or no; the best checkpoint is always kept",
       "steps= epoch=epoch no=no"},
      {"logging_strategy", "logging_steps", "it comes every so many steps; once an epoch is not supported", "steps="},
      {"evals_per_epoch", "eval_steps", part, "@per_epoch"},
      {"saves_per_epoch", "save_steps", part, "@per_epoch"},
      {"save_limit", "save_total_limit", ""},
      {"keep_best", "load_best_model_at_end", ""},
      {"early_stopping_steps", "early_stopping_patience", "evaluations, not steps"},
      {"report_to", "tensorboard", "true or false; metrics.jsonl is always written", "@report"},
      {"use_tensorboard", "tensorboard", "metrics.jsonl is always written"},
      {"logging_dir", "tensorboard", "TensorBoard's events go to output_dir/runs", "*="},
      {"data_seed", "seed", "one seed for everything", "*="},
      // Machine and mesh.
      {"num_threads", "threads", ""},
      {"device", "device", "only cpu and gpu are supported", "auto=auto cpu=cpu gpu=gpu cuda=gpu"},
      {"use_cpu", "device", "device: cpu", "true=cpu false="},
      {"no_cuda", "device", "device: cpu", "true=cpu false="},
      {"gradient_checkpointing", "memory.recompute", "what fits is not recomputed; true is memory.recompute: block",
       "true=block unsloth=block offload=block offload_disk=block false="},
      {"activation_checkpointing", "memory.recompute", blocks, "true=block false="},
      {"enable_activation_checkpointing", "memory.recompute", blocks, "true=block false="},
      {"disable_gradient_checkpointing", "memory.recompute", blocks, "true=none false="},
      {"use_unsloth_gc", "memory.recompute", blocks, "true=block false="},
      {"recompute_granularity", "memory.recompute", "selective; full is block", "selective=selective full=block"},
      {"recompute_num_layers", "memory.recompute_blocks", ""},
      {"deepspeed", "mesh.fsdp", ranks, "@sharded_ranks"},
      {"multi_gpu", "mesh.fsdp", ranks, "@sharded_ranks"},
      {"use_deepspeed", "mesh.fsdp", ranks, "@sharded_ranks"},
      {"use_fsdp", "mesh.fsdp", ranks, "@sharded_ranks"},
      {"fsdp", "mesh.fsdp", ranks, "@sharded_ranks"},
      {"dp_shard_size", "mesh.fsdp", ""},
      {"dp_replicate_size", "mesh.dp", ""},
      {"context_parallel_size", "mesh.cp", ""},
      {"sequence_parallel_degree", "mesh.cp", ""},
      {"tensor_parallel_size", "mesh.tp", ""},
      // Without an option, with values that lose nothing.
      {"stage", "", "fine-tuning on given answers (sft, or pt on plain text) is what train does", "sft= pt="},
      {"special_tokens", "add_tokens", texts, "@tokens"},
      {"tokens", "add_tokens", texts, "@tokens"},
      {"eos_token", "add_tokens", texts, "@tokens"},
      {"add_tokens", "add_tokens", texts, "@new_tokens", ForeignTool::kLlamaFactory},
      {"add_special_tokens", "add_tokens", texts, "@new_tokens"},
      {"new_special_tokens", "add_tokens", texts, "@new_tokens"},
      {"new_special_tokens_config", "add_tokens", "a YAML file with a token a key is expected", "@file_of_tokens"},
      {"init_lora_weights", "lora.init_lora_weights", beginnings, "@init_lora_weights"},
      {"peft_init_lora_weights", "lora.init_lora_weights", beginnings, "@init_lora_weights"},
      {"pissa_init", "lora.init_lora_weights", "", "true=pissa false="},
      {"pissa_iter", "", "singular vectors are computed until they no longer change, in any number of iterations",
       "@needless"},
      {"pissa_convert", "", "the adapter fits OUTPUT_DIR-base, or export merges it; it is not converted",
       "true~ false="},
      {"resize_vocab", "", "tables get rows where tokens need them", "true! false!"},
      {"init_special_tokens", "", "rows of new tokens begin as the mean of all, with transformers' little noise",
       "noise_init~ desc_init~ desc_init_w_noise~"},
      {"trainable_token_indices", "lora.trainable_token_indices", ""},
      {"peft_trainable_token_indices", "lora.trainable_token_indices", ""},
      {"pad_to_sequence_len", "", "rows are padded to the shortest of a few lengths that holds them", "@padding"},
      {"pad_to_multiple_of", "", "rows are padded to the shortest of a few lengths that holds them", "@padding"},
      {"compute_accuracy", "token_accuracy", "", "@token_accuracy"},
      {"loss_type", "", "this loss is not supported", "nll! chunked_nll!"},
      {"task", "task", "benchmarks have no equivalent: temper eval gives the loss on data of your own",
       "sft=sft dpo=dpo"},
      {"metric_for_best_model", "metric_for_best_model", "", "@best_metric"},
      {"average_tokens_across_devices", "",
       "a step's loss is the mean over the tokens of all ranks together, not of each", "true! false~"},
      {"packing_strategy", "", "documents are packed whole, by best fit", "bfd! bfd_split! wrapped~"},
      {"tokenizer_config", "", own_tokenizer, "@tokenizer"},
      {"tokenizer_name", "", own_tokenizer, "@tokenizer"},
      {"tokenizer_name_or_path", "", own_tokenizer, "@tokenizer"},
      {"eval_sample_packing", "", packed_evaluation, "@packed_evaluation"},
      {"eval_packing", "", packed_evaluation, "@packed_evaluation"},
      {"mix_strategy", "", kSharesOfData, "@shares"},
      {"interleave_probs", "", kSharesOfData, "@shares"},
      {"truncation_mode", "", "long conversations are cut at the end, long texts split", "keep_start="},
      {"excess_length_strategy", "long_rows", "", "@excess_length"},
      {"truncation_strategy", "long_rows", ""},
      {"train_sampling_strategy", "", "rows are always shuffled, each epoch anew", "random="},
      {"dataset_train_split", "split", "", "@split"},
      {"dataset_test_split", "", "name it with the data: --eval_data org/name:split=test", "@split"},
      {"quantization_method", "", "this quantisation is not supported (base_dtype: int8 and nf4 are)",
       "bnb! bitsandbytes!"},
      {"num_processes", "nprocs", on_machine, "@processes"},
      {"nproc_per_node", "nprocs", on_machine, "@processes"},
      {"gpus", "nprocs", "one rank for each GPU, with device: gpu", "@processes"},
      {"num_gpus", "nprocs", "one rank for each GPU, with device: gpu", "@processes"},
      {"nnodes", "nprocs", on_machine, "@processes"},
      {"config_file", "nprocs", on_machine, "@processes"},
      {"CUDA_VISIBLE_DEVICES", "nprocs", on_machine, "@processes"},
  };
}

// What a user who gives settings of preferences or rewards is told. In a file of another tool they depend on its task
// (foreign_task.h).
struct OfTask {
  const char* names;
  const char* option;  // of commands that have a task
  const char* advice;
};

constexpr OfTask kOfTasks[] = {
    {"stage rl", "task", "its name here is 'task', such as task: dpo (sft, the default, is also for plain text)"},
    {"reward_model", "task", "its name here is 'task': task: reward"},
    {"ref_model", "reference", "its name here is 'reference'"},
    {"loss_type dpo_loss_type pref_loss", "dpo.loss_type",
     "its name here is 'dpo.loss_type', with task: dpo; simpo, orpo and kto are tasks of their own"},
    {"beta pref_beta rl_beta dpo_beta", "dpo.beta",
     "its name here is 'dpo.beta', with task: dpo (or simpo.beta, orpo.beta, kto.beta with those tasks)"},
    {"orpo_alpha", "orpo.beta", "its name here is 'orpo.beta', with task: orpo"},
    {"rpo_alpha pref_ftx", "dpo.rpo_alpha", "its name here is 'dpo.rpo_alpha', with task: dpo"},
    {"simpo_gamma", "simpo.simpo_gamma", "its name here is 'simpo.simpo_gamma', with task: simpo"},
    {"cpo_alpha", "simpo.cpo_alpha", "its name here is 'simpo.cpo_alpha', with task: simpo"},
    {"dpo_label_smoothing", "dpo.label_smoothing",
     "its name here is 'dpo.label_smoothing', with task: dpo and dpo.loss_type: robust"},
    {"desirable_weight kto_desirable_weight kto_chosen_weight", "kto.desirable_weight",
     "its name here is 'kto.desirable_weight', with task: kto"},
    {"undesirable_weight kto_undesirable_weight kto_rejected_weight", "kto.undesirable_weight",
     "its name here is 'kto.undesirable_weight', with task: kto"},
    {"center_rewards_coefficient", "reward.center_rewards_coefficient",
     "its name here is 'reward.center_rewards_coefficient', with task: reward"},
};

constexpr const char* kOfOtherMethods =
    "this belongs to a method of training that Temper does not have, or sets what it always does; remove it";

// Calls visit(word) for each of `words`, which are separated by spaces.
template <class Visit>
void ForEachWord(std::string_view words, const Visit& visit) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    visit(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

std::vector<ForeignName> AllNames() {
  std::vector<ForeignName> names = NamesWithOptions();
  for (const UpdateRule* rule : UpdateRules()) {
    const std::string note = rule == &DefaultUpdateRule() ? "" : fmt::format("with optimizer: {}", rule->name);
    for (const UpdateSetting& setting : rule->settings) {
      // beta1 is AdamW's where an optimizer that comes later has one, too.
      const bool taken = std::any_of(names.begin(), names.end(), [&](const ForeignName& name) {
        return name.tool == ForeignTool::kAny && name.foreign == setting.attribute;
      });
      if (!taken) names.push_back({setting.attribute, setting.option, note});
    }
  }
  for (const Reason& reason : NamesWithoutOption()) {
    ForEachWord(reason.names, [&](std::string_view name) {
      names.push_back(
          {.foreign = name, .ours = "", .note = reason.reason, .tool = reason.tool, .needless = reason.needless});
    });
  }
  ForEachWord(SettingsOfTrlsOtherTrainers(), [&](std::string_view name) {
    names.push_back({.foreign = name, .ours = "", .note = kGivenAnswers, .tool = kTrl});
  });
  for (ForeignName& name : names) {
    if (name.note == kGivenAnswers) name.advice = kOfOtherMethods;
  }
  for (const OfTask& of_task : kOfTasks) {
    ForEachWord(of_task.names, [&](std::string_view word) {
      for (ForeignName& name : names) {
        if (name.foreign != word) continue;
        name.advice = of_task.advice;
        name.advised = of_task.option;
      }
    });
  }
  return names;
}

}  // namespace

const std::vector<ForeignName>& ForeignNames() {
  static const std::vector<ForeignName> kNames = AllNames();
  return kNames;
}

}  // namespace temper
