#include "config/foreign_tools.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace temper {
namespace {

constexpr ToolDefault kLlamaFactoryDefaults[] = {
    {"max_seq_len", "2048"},
    {"learning_rate", "5e-5"},
    {"per_device_train_batch_size", "8"},
    {"gradient_accumulation_steps", "1"},
    {"lr_scheduler_type", "linear"},
    {"warmup_ratio", "0"},
    {"lora.r", "8"},
};

constexpr ToolDefault kAxolotlDefaults[] = {
    {"method", "full"},        {"max_seq_len", "512"},   {"gradient_accumulation_steps", "1"},
    {"num_train_epochs", "1"}, {"warmup_ratio", "0.03"},
};

constexpr ToolDefault kTrlDefaults[] = {
    {"method", "full"},
    {"max_seq_len", "1024"},
    {"learning_rate", "2e-5"},
    {"per_device_train_batch_size", "8"},
    {"gradient_accumulation_steps", "1"},
    {"lr_scheduler_type", "linear"},
    {"warmup_ratio", "0"},
    {"lora.dropout", "0.05"},
};

struct ToolFacts {
  ForeignTool tool;
  std::string_view name, option;        // as it is written, and as a value of an option
  std::vector<std::string_view> marks;  // names that the other tools do not have
  std::span<const ToolDefault> defaults;
};

const std::array<ToolFacts, 3>& Tools() {
  static const std::array<ToolFacts, 3> kTools = {{
      {ForeignTool::kLlamaFactory,
       "LLaMA-Factory",
       "llama-factory",
       {"stage", "finetuning_type", "cutoff_len", "template", "dataset", "dataset_dir", "lora_rank", "lora_target",
        "val_size"},
       kLlamaFactoryDefaults},
      {ForeignTool::kAxolotl,
       "Axolotl",
       "axolotl",
       {"base_model", "sequence_len", "micro_batch_size", "val_set_size", "num_epochs", "sample_packing", "adapter",
        "lora_target_linear", "lr_scheduler", "optimizer"},
       kAxolotlDefaults},
      {ForeignTool::kTrl,
       "TRL",
       "trl",
       {"dataset_name", "max_length", "use_peft", "dataset_train_split", "dataset_text_field", "assistant_only_loss",
        "completion_only_loss", "attn_implementation", "packing_strategy"},
       kTrlDefaults},
  }};
  return kTools;
}

}  // namespace

std::string_view ToString(ForeignTool tool) {
  for (const ToolFacts& facts : Tools()) {
    if (facts.tool == tool) return facts.name;
  }
  return "another tool";
}

std::vector<std::string_view> ForeignToolNames() {
  std::vector<std::string_view> names = {"auto"};
  for (const ToolFacts& facts : Tools()) names.push_back(facts.option);
  return names;
}

std::span<const ToolDefault> DefaultsOf(ForeignTool tool) {
  for (const ToolFacts& facts : Tools()) {
    if (facts.tool == tool) return facts.defaults;
  }
  return {};
}

Result<ForeignTool> RecogniseTool(const ForeignFile& content, const std::string& file) {
  size_t most = 0;
  std::vector<ForeignTool> best;
  for (const ToolFacts& facts : Tools()) {
    size_t marks = 0;
    for (const ForeignSetting& setting : content.settings) {
      marks += static_cast<size_t>(std::count(facts.marks.begin(), facts.marks.end(), setting.name));
    }
    if (marks > most) best.clear();
    if (marks >= most && marks > 0) best.push_back(facts.tool);
    most = std::max(most, marks);
  }
  if (best.size() == 1) return best[0];
  return InvalidArgument(fmt::format("{}: its names do not show which tool it is for: add --from {}, {} or {}", file,
                                     Tools()[0].option, Tools()[1].option, Tools()[2].option));
}

}  // namespace temper
