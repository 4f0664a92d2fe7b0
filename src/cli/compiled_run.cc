#include "cli/compiled_run.h"

#include "compile/train_step.h"

namespace temper {
namespace {

StepSpec StepSpecOf(const RunConfig& config) {
  return {.micro_batches = static_cast<int>(config.batch.gradient_accumulation_steps),
          .recompute = config.machine.recompute,
          .adamw = {.beta1 = config.optimizer.adam_beta1,
                    .beta2 = config.optimizer.adam_beta2,
                    .eps = config.optimizer.adam_epsilon,
                    .weight_decay = config.optimizer.weight_decay,
                    .max_norm = config.optimizer.max_grad_norm},
          .threads = static_cast<int>(*config.machine.threads)};
}

}  // namespace

DType ComputeDType(const RunConfig& config) {
  TEMPER_CHECK(config.model.dtype != ComputeType::kAuto) << "dtype is not resolved";
  return config.model.dtype == ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
}

LoraSpec LoraSpecOf(const RunConfig::Lora& lora) {
  LoraSpec spec{.r = lora.r,
                .alpha = lora.alpha,
                .dropout = lora.dropout,
                .rslora = lora.use_rslora,
                .rank_pattern = lora.rank_pattern,
                .alpha_pattern = lora.alpha_pattern};
  if (const auto* names = std::get_if<std::vector<std::string>>(&lora.target_modules)) {
    spec.target_modules = *names;
  } else if (const auto& text = std::get<std::string>(lora.target_modules); text != "all-linear") {
    spec.target_regex = text;
  }
  if (const auto* names = std::get_if<std::vector<std::string>>(&lora.exclude_modules)) {
    spec.exclude_modules = *names;
  } else if (const auto& text = std::get<std::string>(lora.exclude_modules); !text.empty()) {
    spec.exclude_regex = text;
  }
  return spec;
}

Flops CompiledRun::ModelFlops(int64_t tokens, double attended_pairs) const {
  const double per_token = (targets.empty() ? 6.0 : 4.0) * static_cast<double>(matmul_parameters);
  return {per_token * static_cast<double>(tokens) + attention_flops_per_pair * attended_pairs};
}

Result<CompiledRun> CompileRun(const Model& model, const RunConfig& config) {
  const int64_t row = *config.data.max_seq_len;
  const auto forward_of = [&](int64_t rows, bool training) {
    return model.Forward({.dtype = ComputeDType(config), .tokens = rows * row, .row = row, .training = training});
  };
  CompiledRun run;
  run.parameters = NumParameters(model);
  Graph forward = forward_of(config.batch.per_device_train_batch_size, /*training=*/true);
  Graph eval = forward_of(config.batch.per_device_eval_batch_size.value_or(config.batch.per_device_train_batch_size),
                          /*training=*/false);
  for (const Node& node : forward.nodes()) {
    if (node.op == Op::kLinear || node.op == Op::kLinearCrossEntropy) {
      run.matmul_parameters += forward.value(node.inputs[1]).type.shape.elements();
    } else if (node.op == Op::kAttention) {
      // Two products forward, twice that backward; 2 FLOPs per multiply-add.
      run.attention_flops_per_pair += 12.0 * static_cast<double>(forward.value(node.inputs[0]).type.shape[1]);
    }
  }
  if (config.model.method == TrainMethod::kLora) {
    TEMPER_ASSIGN_OR_RETURN(run.targets, ResolveLoraTargets(forward, LoraSpecOf(config.lora)));
    forward = AddLora(forward, run.targets, config.lora.dropout);
    eval = AddLora(eval, run.targets, /*dropout=*/0);
    for (const LoraTarget& t : run.targets) run.trainable_parameters += t.r * (t.in + t.out);
  } else {
    TrainAllWeights(&forward);
    run.trainable_parameters = run.parameters;
  }
  TEMPER_ASSIGN_OR_RETURN(run.programs, CompileTraining(forward, eval, StepSpecOf(config)));
  return run;
}

}  // namespace temper
