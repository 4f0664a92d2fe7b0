#include "config/foreign_names.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/foreign_objective.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

constexpr ForeignTool kLlamaFactory = ForeignTool::kLlamaFactory, kAxolotl = ForeignTool::kAxolotl,
                      kTrl = ForeignTool::kTrl;

constexpr const char* kShares =
    "each file of data has its own passes: {path: FILE, passes: P}, where P = its share * all samples / its samples";

constexpr const char* kGivenAnswers =
    "this belongs to a recipe for preferences, rewards or generation while training, and the file has none that is "
    "translated";

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
  const char* const vocabularies = "other vocabularies than the model's are not supported";
  const char* const variable = "a variable of the chat template, as in chat_template_kwargs: {enable_thinking: false}";
  const char* const strategies = "steps, epoch or no";
  const char* const part = "a part of the run: 1 / (times an epoch * epochs)";
  const char* const on_machine = "ranks on this machine; on a cluster the launcher decides";
  const char* const ranks = "several ranks shard weights, gradients and states by default; mesh.fsdp is their number";
  const char* const fraction = "a fraction of the rows, such as 0.05";
  const char* const blocks = "what fits is not recomputed; memory.recompute is auto, none, selective or block";
  const char* const of_schedule = "with lr_scheduler_type: cosine_with_min_lr";
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
      {"pure_bf16", "dtype", "dtype: bf16; the optimizer keeps f32 weights all the same", "true~bf16 false="},
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
      {"special_tokens", "", vocabularies, "@tokens"},
      {"tokens", "", vocabularies, "@tokens"},
      {"eos_token", "", vocabularies, "@tokens"},
      {"pad_to_sequence_len", "", "rows are padded to the shortest of a few lengths that holds them", "@padding"},
      {"pad_to_multiple_of", "", "rows are padded to the shortest of a few lengths that holds them", "@padding"},
      {"compute_accuracy", "token_accuracy", "", "@token_accuracy"},
      {"loss_type", "", "this loss is not supported", "nll! chunked_nll!"},
      {"task", "task", "benchmarks have no equivalent: temper eval gives the loss on data of your own",
       "sft=sft dpo=dpo"},
      {"metric_for_best_model", "metric_for_best_model", "", "@best_metric"},
      {"average_tokens_across_devices", "",
       "a step's loss is the mean over the tokens of all ranks together, not of each", "true! false~"},
      {"mix_strategy", "", kShares, "concat="},
      {"truncation_mode", "", "long conversations are cut at the end, long texts split", "keep_start="},
      {"excess_length_strategy", "", "long conversations are cut at the end, long texts split", "@excess_length"},
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

// Names without an option, separated by spaces, by the reason why.
struct Reason {
  const char* reason;
  const char* names;
  bool needless = false;
  ForeignTool tool = ForeignTool::kAny;
};

constexpr bool kNeedless = true;

constexpr Reason kWithoutOption[] = {
    // What is not supported.
    {"training biases beside an adapter is not supported (Temper behaves as with PEFT's bias: none)",
     "lora.bias lora_bias"},
    {"only PEFT's default initialisation of adapters is supported (A uniform, B zero)",
     "init_lora_weights peft_init_lora_weights pissa_init pissa_iter pissa_convert loftq_config loftq_bits"},
    {"adapters on single tokens and copies of layers are not supported",
     "peft_layer_replication peft_trainable_token_indices layer_replication trainable_token_indices"},
    {"adapters on embeddings, whose rate this is, are not supported", "loraplus_lr_embedding"},
    {"optimizer_groups gives modules a rate of their own: name them there",
     "embedding_lr embedding_lr_scale lr_groups"},
    {"this kind of adapter is not supported (LoRA is)",
     "relora relora_prune_ratio relora_prune_method relora_cpu_offload jagged_restart_steps "
     "jagged_restart_warmup_steps jagged_restart_anneal_steps mora oft_rank oft_block_size oft_target module_dropout "
     "use_llama_pro peft "
     "alora_invocation_tokens arrow_config corda_config eva_config kasa_config lora_ga_config monteclora_config "
     "velora_config qalora_group_size use_qalora use_bdlora"},
    {"training chosen weights or layers is not supported (method: lora or full)",
     "freeze_trainable_layers freeze_trainable_modules freeze_extra_modules unfrozen_parameters lisa_n_layers "
     "lisa_step_interval lisa_layers_attribute spectrum_top_fraction spectrum_model_name"},
    {"this optimizer is not supported (--help lists those that are)",
     "use_galore galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise "
     "use_apollo apollo_target apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type "
     "apollo_scale_type apollo_layerwise apollo_scale_front use_badam badam_mode badam_start_block "
     "badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode badam_verbose use_adam_mini "
     "use_muon adam_beta3 adam_epsilon2 dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of qgalore_rank "
     "qgalore_update_proj_gap qgalore_scale qgalore_proj_type qgalore_proj_quant qgalore_proj_bits "
     "qgalore_proj_group_size qgalore_cos_threshold qgalore_gamma_proj qgalore_queue_size optim_args "
     "optim_target_modules grokfast_alpha grokfast_lamb torchdistx_path flash_optimum"},
    {"this schedule is not supported", "lr_quadratic_warmup cosine_constant_lr_ratio lr_div_factor"},
    {"this loss is not supported",
     "use_dft_loss use_asft_loss asft_alpha use_eaft_loss use_eaft eaft_alpha eaft_k "
     "scaling_softmax scaling_softmax_factor scaling_softmax_bias"},
    {kGivenAnswers,
     "rl trl ebft reward_model process_reward_model center_rewards_coefficient num_labels dpo_use_weighting "
     "dpo_label_smoothing precompute_ref_log_probs dpo_use_liger_kernel dpo_padding_free dpo_loss_type "
     "dpo_loss_weights dpo_beta dpo_use_logits_to_keep dpo_generate_during_eval dpo_norm_loss rpo_alpha orpo_alpha "
     "simpo_gamma cpo_alpha kto_desirable_weight kto_undesirable_weight rl_beta max_prompt_len pref_beta pref_ftx "
     "pref_bco_weight pref_loss kto_chosen_weight kto_rejected_weight ppo_buffer_size ppo_epochs ppo_score_norm "
     "ppo_target ppo_whiten_rewards ref_model ref_model_adapters ref_model_quantization_bit reward_model_adapters "
     "reward_model_quantization_bit reward_model_type ld_alpha trainer_cls hatchery nemo_gym_enabled nemo_gym_dir "
     "nemo_gym_auto_clone nemo_gym_config_paths nemo_gym_head_port nemo_gym_server_timeout nemo_gym_verify_timeout "
     "nemo_gym_run_timeout nemo_gym_datasets nemo_gym_auto_start nemo_gym_model_name nemo_gym_multi_turn "
     "nemo_gym_max_turns"},
    {"distillation and diffusion are not supported",
     "kd_trainer kd_ce_alpha kd_alpha kd_temperature kd_beta kd_normalize_topk kd_online_server_base_url "
     "kd_online_topk "
     "kd_online_server kd_online_timeout kd_temperature_min diffusion"},
    {"mixtures of experts are not supported",
     "mixture_of_depths experts_implementation quantize_moe_experts llama4_linearized_experts expert_parallel_size "
     "expert_parallel_backend expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes "
     "expert_parallel_token_capacity expert_parallel_fallback_on_unsupported dense_mixer expert_backend "
     "nonexpert_quantization moe_grouped_backend moe_dequant_chunk_size moe_bnb_fast use_scattermoe use_sonicmoe "
     "use_dsv4_kernels use_glm_dsa_kernels dsv4_fp8_nonexpert_mode dsv4_fp8_lora_kernel dsv4_shared_mlp_lora_kernel "
     "dsv4_bf16_all dsv4_fp4_grouped_mode gemma4_fp8_nonexpert gemma4_nf4_nonexpert nvfp4_merge_aware "
     "nvfp4_merge_aware_start_step use_kt kt_weight_path kt_expert_checkpoint_path kt_use_lora_experts "
     "kt_lora_expert_num kt_lora_expert_intermediate_size"},
    {"images, video and sound are not supported",
     "image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels "
     "video_fps video_maxlen use_audio_in_video audio_sampling_rate media_dir image_size image_resize_algorithm "
     "role_boundaries processor_type processor_kwargs freeze_vision_tower freeze_multi_modal_projector "
     "freeze_language_model freeze_mm_modules"},
    {"this quantisation is not supported (base_dtype: int8 and nf4 are)",
     "gptq bnb_config_kwargs quantization_device_map model_quantization_config "
     "model_quantization_config_kwargs qat use_onebitllms fp8 fp8_config fp8_backend "
     "fp8_enable_fsdp_float8_all_gather llmcompressor"},
    {"other vocabularies than the model's are not supported",
     "resize_vocab add_tokens add_special_tokens new_special_tokens new_special_tokens_config init_special_tokens "
     "added_tokens_overrides resize_token_embeddings_to_32x mean_resizing_embeddings shrink_embeddings "
     "fix_untrained_tokens split_special_tokens"},
    {"the model is computed as its config.json says",
     "overrides_of_model_config overrides_of_model_kwargs model_init_kwargs rope_scaling shift_attn s2_attention "
     "use_pose pose_split_on_token_ids pose_max_context_len pose_num_chunks type_of_model reinit_weights "
     "base_model_config cls_model_config"},
    {"a revision is part of the name: org/name@revision", "model_revision revision_of_model"},
    {"the chat template decides how a conversation is written",
     "tool_format default_system default_system_message eot_tokens conversation"},
    {"all assistant messages count toward the loss (a message with \"weight\": 0 does not)", "mask_history"},
    {"samples of a data set cannot be chosen by a setting (write the rows to a file)",
     "dataset_shard_num dataset_shard_idx min_sample_len dataset_exact_deduplication"},
    {kShares, "interleave_probs dataset_mixer"},
    {"it is a folder of the data set: name it (org/name/folder)", "dataset_config"},
    {"data is always held as a whole", "streaming dataset_streaming buffer_size streaming_multipack_buffer_size"},
    {"rows are always shuffled, each epoch anew",
     "disable_shuffling curriculum_sampling sample_packing_sequentially group_by_length "
     "length_column_name sortish_sampler"},
    {"evaluation has the rows, lengths and loss of training",
     "eval_sequence_len eval_packing eval_sample_packing eval_on_each_dataset do_bench_eval bench_dataset bench_split "
     "do_causal_lm_eval eval_causal_lm_metrics lm_eval_tasks lm_eval_batch_size lm_eval_post_train lm_eval_model "
     "predict_with_generate do_predict eval_num_beams generate_samples num_generation_samples "
     "generation_max_new_tokens generation_temperature generation_top_p generation_top_k generation_prompt_ratio "
     "generation_do_sample generation_max_length generation_num_beams generation_config eval_table_size "
     "eval_max_new_tokens include_for_metrics include_inputs_for_metrics batch_eval_metrics label_names"},
    {"evaluation comes every eval_steps, and at the end", "eval_on_start eval_delay"},
    {"checkpoints always hold the optimizer's states, too, and come every save_steps",
     "save_only_model save_first_step dynamic_checkpoint enable_jit_checkpoint"},
    {"only metrics.jsonl and TensorBoard are written",
     "use_wandb wandb_name wandb_run_id wandb_mode wandb_project wandb_entity wandb_watch wandb_log_model use_mlflow "
     "mlflow_tracking_uri mlflow_experiment_name mlflow_run_name hf_mlflow_log_artifacts use_comet comet_api_key "
     "comet_workspace comet_project_name comet_experiment_key comet_mode comet_online comet_experiment_config "
     "use_trackio trackio_project_name trackio_run_name trackio_space_id trackio_bucket_id trackio_static_space_id "
     "use_otel_metrics otel_metrics_host otel_metrics_port use_swanlab swanlab_project swanlab_workspace "
     "swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir swanlab_lark_webhook_url swanlab_lark_secret "
     "swanlab_experiment_name swanlab_description swanlab_log_model swanlab_web_host swanlab_api_host "
     "swanlab_log_completions swanlab_completion_log_interval swanlab_completion_max_buffer"},
    {"nothing is uploaded",
     "push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision "
     "push_dataset_to_hub"},
    {"a profile is --profile",
     "profiler_steps profiler_steps_start enable_torch_profiler profiler_output_dir "
     "profiler_wait_steps profiler_warmup_steps profiler_active_steps profiler_repeat profiler_record_shapes "
     "profiler_profile_memory profiler_with_stack profile_modules"},
    {"a step keeps its rows; per_device_train_batch_size: auto cuts it into micro-batches that fit",
     "auto_find_batch_size"},
    {"Temper has no plugins", "plugins"},
    {"this is for other commands (temper generate, chat, export)",
     "do_sample temperature top_p top_k num_beams max_new_tokens repetition_penalty length_penalty "
     "skip_special_tokens merge_lora merge_method gradio_title gradio_share gradio_server_name gradio_server_port "
     "gradio_max_new_tokens gradio_temperature vllm vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank "
     "vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend infer_backend "
     "infer_dtype export_dir export_size export_device export_quantization_bit export_quantization_dataset "
     "export_quantization_nsamples export_quantization_maxlen export_legacy_format export_hub_model_id task_dir "
     "lang n_shot download_mode is_preprocess preprocess_iterable"},
    {"this is for generating answers", "max_length", !kNeedless, kLlamaFactory},
    {"launching is the launcher's: --nprocs, mpirun or srun (docs/howto/launch.md)",
     "use_ray ray_run_name ray_num_workers resources_per_worker ray_init_kwargs ray_scope master_addr master_port "
     "gpu_ids "
     "dynamo_backend zero_stage deepspeed_config_file num_cpu_threads_per_process standalone num_machines machine_rank "
     "main_process_ip main_process_port rdzv_backend rdzv_endpoint "
     "rdzv_id"},
    {"--stop_on_divergence ends a run whose loss stays above that of its first steps",
     "loss_watchdog_threshold loss_watchdog_patience"},
    {"a YAML file is given without a flag: temper train run.yaml", "config"},
    // What is not needed.
    {"attention is always fused and isolates documents",
     "flash_attention flash_attn attn_implementation xformers_attention sdp_attention flex_attention "
     "flex_attn_compile_kwargs sage_attention eager_attention flash_attn_cross_entropy flash_attn_fuse_mlp "
     "flash_attn_rms_norm flash_attn_d512 gemma4_hybrid_attn_impl large_head_attention sdpa_varlen fused_attn_kernel "
     "block_diag_attn heads_k_stride ring_attn_func batch_flattening padding_free pretrain_multipack_attn",
     kNeedless},
    {"kernels are chosen for the processor, and always fused",
     "enable_liger_kernel use_liger_kernel liger_kernel_config liger_rope liger_rms_norm liger_rms_norm_gated "
     "liger_layer_norm liger_swiglu liger_glu_activation liger_cross_entropy liger_fused_linear_cross_entropy "
     "liger_use_token_scaling liger_kernel_impl cut_cross_entropy chunked_cross_entropy "
     "chunked_cross_entropy_num_chunks lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel tiled_mlp "
     "tiled_mlp_num_shards tiled_mlp_use_original_mlp use_unsloth use_kernels use_v1_kernels torch_compile "
     "torch_compile_backend torch_compile_mode torch_compile_options deepcompile jit_mode_eval use_ipex tf32 "
     "peft_autocast_adapter_dtype upcast_layernorm upcast_lmhead_output embeddings_skip_upcast fp32_norms "
     "fp32_norm_classes bf16_full_eval fp16_full_eval half_precision_backend fp16_opt_level fp16_backend use_mca "
     "use_hyper_parallel hyper_parallel_args",
     kNeedless},
    {"memory is planned before the run (memory.*, temper plan)",
     "gradient_checkpointing_kwargs activation_checkpointing_kwargs use_reentrant_gc selective_checkpointing "
     "activation_offloading layer_offloading ple_cpu_offload lora_on_cpu offload_folder max_memory gpu_memory_limit "
     "low_cpu_mem_usage gc_steps gc_collect_steps torch_empty_cache_steps device_map world_size "
     "experimental_skip_move_to_device skip_memory_metrics qlora_sharded_model_loading use_cache use_kv_cache "
     "eval_accumulation_steps",
     kNeedless},
    {"ranks shard by the mesh (mesh.*), and its communication overlaps by itself",
     "fsdp_config fsdp_version fsdp_final_state_dict_type fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap ddp "
     "ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters ddp_static_graph ddp_backend local_rank "
     "accelerator_config parallelism_config split_batches dispatch_batches "
     "ddp_timeout sharded_ddp xpu_backend tpu_num_cores tpu_metrics_debug use_mps_device past_index mp_parameters",
     kNeedless},
    {"data is read and tokenized by all threads, once",
     "overwrite_cache preprocessing_batch_size preprocessing_num_workers dataset_num_proc dataset_processes "
     "dataset_kwargs dataset_keep_in_memory dataloader_pin_memory dataloader_num_workers "
     "dataloader_prefetch_factor dataloader_persistent_workers dataloader_drop_last dataloader_in_order "
     "dataloader_multiprocessing_context skip_prepare_dataset num_dataset_shards_to_save remove_unused_columns "
     "data_shared_file_system cache_dir pretrain_multipack_buffer_size dataset_format",
     kNeedless},
    {"all rows are shuffled together, each epoch anew",
     "shuffle_dataset shuffle_merged_datasets shuffle_before_merging_datasets", kNeedless},
    {"padding is never read and never counts toward the loss", "pad_token ignore_pad_token_for_loss", kNeedless},
    {"rows are packed whole, by best fit, and padded to max_seq_len",
     "sample_packing_group_size sample_packing_bin_size sample_packing_mp_start_method packing_strategy "
     "multipack_real_batches pretraining_sample_concatenation total_num_tokens total_supervised_tokens "
     "sample_packing_eff_est",
     kNeedless},
    {"the tokenizer is read from the model's folder, and no code of a model is run",
     "trust_remote_code trust_remote_code_model use_fast_tokenizer tokenizer_use_fast tokenizer_legacy "
     "tokenizer_use_mistral_common tokenizer_type tokenizer_config tokenizer_save_jinja_files tokenizer_name "
     "tokenizer_name_or_path model_type hf_use_auth_token is_falcon_derived_model is_llama_derived_model "
     "is_mistral_derived_model is_qwen_derived_model hf_hub_token ms_hub_token om_hub_token "
     "ignore_bias_buffers lora_task_type lora_fan_in_fan_out fan_in_fan_out "
     "save_safetensors megatron_config megatron_core runtime_config",
     kNeedless},
    {"an nf4 base is computed in the run's dtype", "bnb_4bit_compute_dtype bnb_4bit_quant_storage", kNeedless},
    {"progress and metrics always show this",
     "logging_first_step log_on_each_node logging_nan_inf_filter include_num_input_tokens_seen "
     "include_tokens_per_second "
     "include_tkps include_effective_tokens_per_second log_level log_level_replica disable_tqdm "
     "plot_loss print_param_status debug prediction_loss_only eval_do_concat_batches eval_use_gather_object "
     "save_on_each_node",
     kNeedless},
    {"a run has the name of its output_dir", "run_name project", kNeedless},
    {"resuming is exact, and always restores everything",
     "ignore_data_skip restore_callback_states_from_checkpoint full_determinism create_new_adapter adapter_folder",
     kNeedless},
    {"this is always on", "do_train strict axolotl_config_path", kNeedless},
    {"dataset_info.json is looked for there", "dataset_dir", kNeedless},
};

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
  for (const Reason& reason : kWithoutOption) {
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
