#include "compile/run/compiled_run.h"

#include <fmt/core.h>

#include "compile/run/update_groups.h"
#include "model/base_format.h"
#include "model/lora.h"

namespace temper {
namespace {

std::optional<Tier> TierOf(TierChoice choice) {
  switch (choice) {
    case TierChoice::kAuto:
      return std::nullopt;
    case TierChoice::kDevice:
      return Tier::kDevice;
    case TierChoice::kHost:
      return Tier::kHost;
    case TierChoice::kDisk:
      return Tier::kDisk;
  }
  return std::nullopt;
}

}  // namespace

MemorySpec MemorySpecOf(const RunConfig& config) {
  const RunConfig::Memory& m = config.memory;
  MemorySpec spec = {.policy = m.policy,
                     .device = m.device.value_or(kNoLimit),
                     .host = m.host.value_or(kNoLimit),
                     .disk = !m.disk.empty(),
                     .weights = TierOf(m.weights),
                     .gradients = TierOf(m.gradients),
                     .optimizer = TierOf(m.optimizer),
                     .activations = TierOf(m.activations),
                     .matrices = m.bf16_weights};
  if (config.machine.device == DeviceChoice::kGpu) {
    spec.rates = TypicalGpu();
    spec.links.host_to_device = spec.links.device_to_host = kTypicalGpuLink;
    spec.links.copies = {};  // separate copy engines do them
    spec.loss_chunks_keep_bits = false;
    spec.shared = false;
  } else {
    // Ranks copy through memory, as values of the host do; between hosts 10 Gbit/s.
    spec.ranks = {.inside = {8e9, {5e-6}}, .between = {1.25e9, {50e-6}}, .ranks_per_host = kOneHost};
    spec.links.copies.slows *= 2.0 / static_cast<double>(config.machine.threads.value_or(2));  // one of `threads` cores
  }
  return spec;
}

UpdateSpec UpdateSpecOf(const RunConfig::Optimizer& o) {
  const UpdateRule* const others = o.rule->others();
  return {.rule = o.rule,
          .settings = o.settings.Of(*o.rule),
          .settings_of_others = others == nullptr ? Attributes() : o.settings.Of(*others),
          .weight_decay = o.weight_decay,
          .max_norm = o.max_grad_norm,
          .ema_decay = o.ema_decay,
          .stochastic_rounding = o.stochastic_rounding};
}

DType ComputeDType(const RunConfig& config) {
  TEMPER_CHECK(config.model.dtype != ComputeType::kAuto) << "dtype is not resolved";
  return config.model.dtype == ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
}

Flops CompiledRun::ModelFlops(int64_t tokens, Flops attention) const {
  // One multiply-add forward, one for the gradient of the input, and one for the gradient of a trained weight.
  const double in_products = static_cast<double>(work.weights);
  const double per_token =
      trains.all_weights ? 6.0 * in_products : 4.0 * in_products + 2.0 * static_cast<double>(trained_in_products);
  const double of_teacher = 2.0 * static_cast<double>(teacher_work.weights);
  return Flops{(per_token + of_teacher) * static_cast<double>(tokens)} + attention;
}

Flops CompiledRun::AttentionFlops(int64_t tokens) const {
  Flops flops;
  // Each forward product has two in the backward.
  for (const auto& [window, forward] : work.flops_per_pair) flops.v += 3 * forward * AttendedPairs(tokens, window);
  for (const auto& [window, forward] : teacher_work.flops_per_pair) {
    flops.v += forward * AttendedPairs(tokens, window);
  }
  return flops;
}

std::string CompiledRun::MemoryText() const {
  std::string text;
  if (!memory.text.empty()) {
    text = limited_because.empty() ? memory.ToString() : limited_because + ": " + memory.ToString();
  }
  if (packed) {
    if (!text.empty()) text += "; ";
    if (trains.all_weights) {
      text += fmt::format("weights are packed for products once per step ({})", ToString(*packed));
    } else {
      text += "frozen weights are packed for products";
      if (packed->v > 0) text += fmt::format(", a second time for the backward ({})", ToString(*packed));
    }
  }
  return text;
}

Result<std::vector<std::string>> IdleSettings(const Model& model, const RunConfig& config) {
  const LoraConfig& lora = config.lora;
  std::vector<std::string> idle;
  if (!config.optimizer.groups.empty() || !lora.saved_names().empty()) {
    TrainableSet trains{.all_weights = true};
    if (config.model.method == TrainMethod::kLora) {
      TEMPER_ASSIGN_OR_RETURN(trains, ResolveTrainable(model, lora));
    }
    idle = IdleGroups(config.optimizer, trains, model);
    if (std::string note = NoteOnTies(lora, trains); !note.empty()) idle.push_back(std::move(note));
  }
  int64_t of_stacks = 0;
  for (const LinearModule& m : model.modules()) of_stacks += m.matrices * m.out() * m.in;
  const auto base = FormatOf(config.model.base_dtype);
  const auto experts = ExpertsFormat(model.facts(), base, ComputeDType(config));
  if (of_stacks > 0 && base && experts != base) {
    idle.push_back(fmt::format(
        "base_dtype: {} is for linear modules here: the experts, {:.0f} % of the parameters, stay {}", ToString(*base),
        100 * static_cast<double>(of_stacks) / static_cast<double>(NumParameters(model)),
        experts ? fmt::format("in {}, as the model's files have them", ToString(*experts)) : "as they are computed"));
  }
  const bool selective = !lora.parameter_names().empty() || !lora.rank_pattern.empty() || !lora.alpha_pattern.empty() ||
                         !lora.exclude_names().empty() || !lora.exclude_regex().empty() ||
                         !lora.layers_to_transform.empty();
  if (config.model.method != TrainMethod::kLora || !selective) return idle;
  TEMPER_ASSIGN_OR_RETURN(std::vector<std::string> of_lora, IdleLoraSettings(model.modules(), lora));
  idle.insert(idle.begin(), of_lora.begin(), of_lora.end());
  return idle;
}

}  // namespace temper
