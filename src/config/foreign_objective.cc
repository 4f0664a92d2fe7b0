#include "config/foreign_objective.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "config/foreign_defaults.h"
#include "config/launch_line.h"

namespace temper {
namespace {

constexpr std::string_view kPreferences = "trains on preferences", kRewards = "trains by rewards",
                           kRewardModel = "trains a reward model", kTeacher = "trains on a teacher's distribution";

// As values of `stage` and `rl`, and in the names of scripts and commands: "dpo.py", "trl grpo".
struct Method {
  std::string_view name, does;
};
constexpr Method kMethods[] = {
    {"dpo", kPreferences},    {"ipo", kPreferences}, {"kto", kPreferences},      {"orpo", kPreferences},
    {"cpo", kPreferences},    {"tpo", kPreferences}, {"bco", kPreferences},      {"simpo", kPreferences},
    {"xpo", kPreferences},    {"ppo", kRewards},     {"grpo", kRewards},         {"gdpo", kRewards},
    {"rloo", kRewards},       {"ebft", kRewards},    {"gmpo", kRewards},         {"rm", kRewardModel},
    {"reward", kRewardModel}, {"prm", kRewardModel}, {"distillation", kTeacher}, {"distill", kTeacher},
    {"gkd", kTeacher},        {"kd", kTeacher},
};

const Method* FindMethod(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Method& m) { return m.name == name; });
  return at == std::end(kMethods) ? nullptr : at;
}

// The method that the name of a script or command holds as a word: "recipes/run_dpo.py".
const Method* MethodOf(std::string_view program) {
  for (const std::string& word : NameWords(program)) {
    if (const Method* const method = FindMethod(word)) return method;
  }
  return nullptr;
}

// What the value of a setting makes of the run; empty: no more than fine-tuning.
std::string Does(ForeignTool tool, const ForeignSetting& setting, bool has_task) {
  const std::string value = setting.Text();
  const auto method = [&] {
    const Method* const known = FindMethod(value);
    return known != nullptr ? std::string(known->does) : "is not fine-tuning on given answers";
  };
  const std::string chosen = "trains only chosen weights (here: LoRA, or all with method: full)";
  if (setting.name == "finetuning_type") {
    if (value == "lora" || value == "full") return "";
    return value == "freeze" ? chosen : "is another kind of adapter than LoRA";
  }
  switch (tool) {
    case ForeignTool::kLlamaFactory:
      if (setting.name == "stage" && !has_task && value != "sft" && value != "pt") return method();
      break;
    case ForeignTool::kAxolotl:
      if (IsDefault(tool, setting.name, setting.value)) return "";
      if (setting.name == "rl" && !has_task) return method();
      if ((setting.name == "reward_model" && !has_task) || setting.name == "process_reward_model")
        return std::string(kRewardModel);
      if (setting.name == "kd_trainer") return std::string(kTeacher);
      if (setting.name == "plugins" && value.find(".kd.") != value.npos) return std::string(kTeacher);
      if (setting.name == "plugins" && value.find(".diffusion.") != value.npos) return "trains by diffusion";
      if (IsListed("unfrozen_parameters lisa_n_layers spectrum_top_fraction", setting.name)) return chosen;
      if (setting.name == "adapter" && value != "lora" && value != "qlora") return "is another adapter than LoRA";
      break;
    case ForeignTool::kTrl:
      if (!has_task && IsListed(SettingsOfTrlsOtherTrainers(), setting.name)) {
        return "TRL's SFT has no such setting; its trainers for preferences, rewards and distillation have it";
      }
      break;
    case ForeignTool::kAny:
      break;
  }
  return "";
}

}  // namespace

std::vector<OtherObjective> OtherObjectives(const ForeignFile& file, ForeignTool tool, bool has_task) {
  std::vector<OtherObjective> found;
  const ForeignWord& program = file.program.word;
  const Method* const method = MethodOf(program.text);
  const bool translated =
      has_task && method != nullptr && (method->does == kPreferences || method->does == kRewardModel);
  if (method != nullptr && !translated) {
    found.push_back({"", fmt::format("line {}: {} {}", program.line, program.text, method->does)});
  }
  for (const ForeignSetting& setting : file.settings) {
    const std::string does = Does(tool, setting, has_task);
    if (!does.empty()) found.push_back({setting.name, fmt::format("{}: {}", setting.Shown(), does)});
  }
  return found;
}

std::string_view SettingsOfTrlsOtherTrainers() {
  return "add_tail_bucket alpha beta beta1 beta2 cache_implementation cast_lm_head_to_fp32 center_rewards_coefficient "
         "cpo_alpha delta desirable_weight diagnostics_flat_tolerance diagnostics_warning_interval disable_dropout "
         "discopop_tau distillation_add_tail distillation_alpha distillation_is_clip distillation_mode "
         "distillation_objective distillation_topk distillation_weight dont_reprompt_on_self_success "
         "ds3_gather_for_generation entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target "
         "environment_feedback_only_without_solution epsilon epsilon_high f_alpha_divergence_coef f_divergence_type "
         "feedback_template filter_all_incorrect fork_threshold_tokens generate_during_eval generate_from_teacher "
         "generation_batch_size generation_kwargs heartbeat_stale_after_s importance_sampling_level "
         "include_environment_feedback is_encoder_decoder iw_opd_epsilon iw_opd_gamma ld_alpha lmbda log_completions "
         "log_completions_hub_repo log_completions_steps log_multimodal log_unique_prompts loss_add_tail loss_top_k "
         "loss_weights mask_truncated_completions max_completion_length max_inflight_tasks max_prompt_length "
         "max_reprompt_len max_staleness max_tool_calling_iterations missing_eos_penalty multi_objective_aggregation "
         "normalize_advantages num_completions_to_print num_generations num_generations_eval num_iterations "
         "num_loss_tokens_to_skip num_value_samples off_policy_mask_threshold padding_value precompute_ref_batch_size "
         "precompute_ref_log_probs queue_maxsize ref_model_mixup_alpha ref_model_sync_steps "
         "remove_thinking_from_demonstration reprompt_template request_timeout reverse_kl_top_1_mode reward_clip_range "
         "reward_model_path reward_weights sapo_temperature_neg sapo_temperature_pos scale_rewards seq_kd simpo_gamma "
         "solution_template steps_per_generation success_reward_threshold sync_ref_model teacher_model_init_kwargs "
         "teacher_model_kind teacher_model_name_or_path teacher_model_revision teacher_model_server_url "
         "teacher_prompt_template teacher_server_urls teacher_sync_steps teacher_temperature "
         "teacher_tokenizer_name_or_path teacher_top_k teacher_update_rate token_budget top_entropy_quantile tpo_alpha "
         "tpo_l_gamma transformers_continuous_batching_config uld_crossentropy_weight uld_distillation_weight "
         "uld_hybrid_matched_weight uld_hybrid_unmatched_weight uld_skip_student_eos uld_skip_teacher_eos "
         "uld_student_temperature uld_teacher_temperature uld_token_merge_strategy uld_use_hybrid_loss "
         "undesirable_weight use_adaptive_entropy use_bias_correction_kl use_extended_uld use_successful_as_teacher "
         "use_teacher_server use_transformers_continuous_batching use_transformers_paged use_uld_loss use_vllm "
         "use_weighting vespo_k_neg vespo_k_pos vespo_lambda_neg vespo_lambda_pos vllm_enable_sleep_mode "
         "vllm_gpu_memory_utilization vllm_group_port vllm_importance_sampling_cap vllm_importance_sampling_clip_max "
         "vllm_importance_sampling_clip_min vllm_importance_sampling_correction vllm_importance_sampling_mode "
         "vllm_max_model_length vllm_mode vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port "
         "vllm_server_timeout vllm_structured_outputs_regex vllm_sync_frequency vllm_tensor_parallel_size "
         "wandb_log_unique_prompts weight_sync_steps weight_sync_timeout";
}

bool IsListed(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace temper
