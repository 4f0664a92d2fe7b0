#include "config/names_without_option.h"

namespace temper {
namespace {

constexpr bool kNeedless = true;

constexpr Reason kWithoutOption[] = {
    // What is not supported.
    {"training biases beside an adapter is not supported (Temper behaves as with PEFT's bias: none)",
     "lora.bias lora_bias"},
    {"adapters begin as lora.init_lora_weights says: true, pissa or olora", "loftq_config loftq_bits"},
    {"copies of layers are not supported", "peft_layer_replication layer_replication"},
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
     "adam_beta3 adam_epsilon2 dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of qgalore_rank "
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
    {"diffusion is not supported", "diffusion"},
    {"a teacher's answers are learned by task: distill (docs/howto/distill.md), which has other settings",
     "kd_trainer kd_ce_alpha kd_alpha kd_temperature kd_beta kd_normalize_topk kd_online_server_base_url "
     "kd_online_topk "
     "kd_online_server kd_online_timeout kd_temperature_min"},
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
    {kSharesOfData, "dataset_mixer"},
    {"it is a folder of the data set: name it (org/name/folder)", "dataset_config"},
    {"data is always held as a whole", "streaming dataset_streaming buffer_size streaming_multipack_buffer_size"},
    {"rows are always shuffled, each epoch anew",
     "disable_shuffling curriculum_sampling sample_packing_sequentially group_by_length "
     "length_column_name sortish_sampler"},
    {"evaluation has the rows, lengths and loss of training",
     "eval_sequence_len eval_on_each_dataset do_bench_eval bench_dataset bench_split "
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
    {"this is for generating answers", "max_length", !kNeedless, ForeignTool::kLlamaFactory},
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
     "low_cpu_mem_usage gc_steps gc_collect_steps torch_empty_cache_steps device_map "
     "experimental_skip_move_to_device qlora_sharded_model_loading "
     "",
     kNeedless},
    {"ranks shard by the mesh (mesh.*), and its communication overlaps by itself",
     "fsdp_config fsdp_version fsdp_final_state_dict_type fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap ddp "
     "ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters ddp_static_graph ddp_backend "
     "accelerator_config parallelism_config "
     "sharded_ddp mp_parameters",
     kNeedless},
    {"data is read and tokenized by all threads, once",
     "overwrite_cache preprocessing_batch_size preprocessing_num_workers dataset_num_proc dataset_processes "
     "dataset_kwargs dataset_keep_in_memory dataloader_pin_memory dataloader_num_workers "
     "dataloader_prefetch_factor dataloader_persistent_workers dataloader_in_order "
     "dataloader_multiprocessing_context skip_prepare_dataset num_dataset_shards_to_save "
     "data_shared_file_system cache_dir pretrain_multipack_buffer_size dataset_format",
     kNeedless},
    {"all rows are shuffled together, each epoch anew",
     "shuffle_dataset shuffle_merged_datasets shuffle_before_merging_datasets", kNeedless},
    {"how long ranks wait for each other is watch.idle_seconds and watch.busy_seconds", "ddp_timeout", kNeedless},
    {"ranks are numbered by what starts them", "local_rank world_size", kNeedless},
    {"each rank takes its own rows of a batch", "split_batches dispatch_batches", kNeedless},
    {"devices are cpu and gpu", "use_mps_device xpu_backend tpu_num_cores tpu_metrics_debug", kNeedless},
    {"training keeps no cache of keys and values", "use_cache use_kv_cache past_index", kNeedless},
    {"evaluation keeps sums, not logits",
     "eval_accumulation_steps eval_do_concat_batches eval_use_gather_object prediction_loss_only", kNeedless},
    {"the end of each run says the memory that it took", "skip_memory_metrics", kNeedless},
    {"the rows left over at the end of an epoch make a smaller step", "dataloader_drop_last"},
    {"fields that are not used are not read", "remove_unused_columns", kNeedless},
    {"weights are always saved as safetensors", "save_safetensors", kNeedless},
    {"config.json says the family of a model, and how its weights lie",
     "model_type is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model "
     "lora_fan_in_fan_out fan_in_fan_out",
     kNeedless},
    {"an adapter is one for the model that it is trained on", "lora_task_type", kNeedless},
    {"a loss that is not finite ends the run", "logging_nan_inf_filter", kNeedless},
    {"each rank saves its part of a checkpoint, the first logs", "save_on_each_node log_on_each_node", kNeedless},
    {"a new adapter on another: merge that first (temper export), and train on the result", "create_new_adapter"},
    {"padding is never read and never counts toward the loss", "pad_token ignore_pad_token_for_loss", kNeedless},
    {"rows are packed whole, by best fit, and padded to max_seq_len",
     "sample_packing_group_size sample_packing_bin_size sample_packing_mp_start_method "
     "multipack_real_batches pretraining_sample_concatenation total_num_tokens total_supervised_tokens "
     "sample_packing_eff_est",
     kNeedless},
    {"the tokenizer is read from the model's folder, and no code of a model is run",
     "trust_remote_code trust_remote_code_model use_fast_tokenizer tokenizer_use_fast tokenizer_legacy "
     "tokenizer_use_mistral_common tokenizer_type tokenizer_save_jinja_files "
     "hf_use_auth_token "
     "hf_hub_token ms_hub_token om_hub_token "
     "ignore_bias_buffers "
     "megatron_config megatron_core runtime_config",
     kNeedless},
    {"an nf4 base is computed in the run's dtype", "bnb_4bit_compute_dtype bnb_4bit_quant_storage", kNeedless},
    {"progress and metrics always show this",
     "logging_first_step include_num_input_tokens_seen "
     "include_tokens_per_second "
     "include_tkps include_effective_tokens_per_second log_level log_level_replica disable_tqdm "
     "plot_loss print_param_status debug "
     "",
     kNeedless},
    {"a run has the name of its output_dir", "run_name project", kNeedless},
    {"resuming is exact, and always restores everything",
     "ignore_data_skip restore_callback_states_from_checkpoint full_determinism adapter_folder", kNeedless},
    {"this is always on", "do_train strict axolotl_config_path", kNeedless},
    {"dataset_info.json is looked for there", "dataset_dir", kNeedless},
};

}  // namespace

std::span<const Reason> NamesWithoutOption() {
  return kWithoutOption;
}

}  // namespace temper
