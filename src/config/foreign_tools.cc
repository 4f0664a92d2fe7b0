#include "config/foreign_tools.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "config/run_options.h"

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

// Marks of recipes that are not read: names, or keys anywhere within.
struct OtherTool {
  std::string_view name;
  std::vector<std::string_view> marks;
};
const std::array<OtherTool, 2>& OtherTools() {
  static const std::array<OtherTool, 2> kOthers = {{
      {"ms-swift", {"rlhf_type", "train_type", "tuner_type", "sft_type"}},
      {"torchtune", {"_component_"}},
  }};
  return kOthers;
}

bool HasKey(const OrderedJson& value, std::string_view key) {
  if (!value.is_structured()) return false;
  if (value.is_object() && value.contains(key)) return true;
  return std::any_of(value.begin(), value.end(), [&](const OrderedJson& inner) { return HasKey(inner, key); });
}

// Empty: none of them.
std::string_view OtherToolOf(const ForeignFile& content) {
  if (!content.program.other_tool.empty()) return content.program.other_tool;
  for (const OtherTool& tool : OtherTools()) {
    for (const std::string_view mark : tool.marks) {
      for (const ForeignSetting& setting : content.settings) {
        if (setting.name == mark || HasKey(setting.value, mark)) return tool.name;
      }
    }
  }
  return "";
}

// Whether a file that no tool's names mark has options of Temper alone.
bool IsOwn(const ForeignFile& content) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const auto names = [&](std::string_view name) {
    return std::any_of(content.settings.begin(), content.settings.end(),
                       [&](const ForeignSetting& setting) { return setting.name == name; });
  };
  return content.program.word.text.empty() && (names("model") || names("data")) &&
         std::all_of(content.settings.begin(), content.settings.end(), [&](const ForeignSetting& setting) {
           return options.Find(setting.name) != nullptr || options.IsSection(setting.name);
         });
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
  if (content.program.tool != ForeignTool::kAny) return content.program.tool;
  if (const std::string_view other = OtherToolOf(content); !other.empty()) {
    return InvalidArgument(fmt::format(
        "{}: this is {}'s; its settings are not known here. Recipes of LLaMA-Factory, Axolotl and TRL are translated "
        "(--from NAME takes it for one of these)",
        file, other));
  }
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
  if (IsOwn(content)) {
    return InvalidArgument(fmt::format("{0}: these are Temper's own settings: temper train {0}", file));
  }
  return InvalidArgument(fmt::format("{}: its names do not show which tool it is for: add --from {}, {} or {}", file,
                                     Tools()[0].option, Tools()[1].option, Tools()[2].option));
}

}  // namespace temper
