// LoraConfig: a LoRA adapter as PEFT's adapter_config.json describes it. The same struct is a run's `lora` section.
// Only what Temper honours is kept; settings that would change the result and that Temper does not support
// (trained biases, copied layers, ...) are refused on reading.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/env.h"

namespace temper {

// Rows of a table that are trained beside an adapter. More are a table to be trained in full.
inline constexpr int64_t kMostTokenIndices = 1 << 16;

struct LoraConfig {
  // A text, or a list of names: a module's path equals a name or ends with "." + name.
  using Modules = std::variant<std::string, std::vector<std::string>>;

  int64_t r = 16;
  double alpha = 32;  // lora_alpha
  double dropout = 0;
  Modules target_modules = "all-linear";  // a text: a regex over whole paths, or all linear modules but the head
  // Parameters of modules that are not linear, such as stacks of experts: a parameter's path equals a name or ends with
  // "." + name. A text is one name. Beside target_modules, which may then be empty.
  Modules target_parameters = std::vector<std::string>();
  Modules exclude_modules = std::vector<std::string>();  // a text: a regex over whole paths; "" excludes nothing
  // Only modules of these layers, by their numbers; empty: all. A module of which target_modules lists the whole path
  // has its adapter anyway. layers_pattern: names (regexes) of the lists that the numbers count in; empty: any.
  std::vector<int64_t> layers_to_transform;
  Modules layers_pattern = std::vector<std::string>();
  bool use_rslora = false;
  bool use_dora = false;  // magnitudes beside A and B (Liu et al. 2024)
  // Per-module overrides; a key matches a module's path as the regex "(.*\.)?(key)$". First match wins.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  // Modules that are trained in full beside the adapter: names that a module's path ends with (also within a word). A
  // text is one name.
  Modules modules_to_save = std::vector<std::string>();
  // A head that is tied to the embedding table stays so where one of the two is among them.
  bool ensure_weight_tying = false;
  // Rows of tables of words that are trained beside the adapter, by the name of the table's module; "": of the table
  // that tokens are looked up in.
  using TokenIndices = std::vector<std::pair<std::string, std::vector<int64_t>>>;
  TokenIndices trainable_token_indices;
  // Written, never read: whether weights are stored as [in, out] follows from the model, as in PEFT.
  bool fan_in_fan_out = false;
  std::string base_model;     // base_model_name_or_path; empty in a run, which names its base elsewhere
  std::string base_revision;  // of a base_model that is the name of a repository; empty: main

  bool judges_sequences = false;  // written, never read: PEFT's task_type

  bool operator==(const LoraConfig&) const = default;

  bool all_linear() const;
  // The regex or the names of a setting; empty if it is the other of the two, or "all-linear".
  const std::string& target_regex() const;
  const std::vector<std::string>& target_names() const;
  const std::string& exclude_regex() const;
  const std::vector<std::string>& exclude_names() const;
  std::vector<std::string> layers_patterns() const;
  std::vector<std::string> saved_names() const;      // modules_to_save
  std::vector<std::string> parameter_names() const;  // target_parameters
  // Whether adapters or modules in full may be of some blocks alone, named by numbers or matched by an expression:
  // blocks are then not alike.
  bool NamesBlocks() const;
};

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";

// What to do with an adapter that Temper does not compute.
inline constexpr char kMergeWithPeft[] =
    "If PEFT can merge the adapter into its base (merge_and_unload), use the merged model";

// Settings that the file leaves out have PEFT's defaults (r 8, alpha 8), not those above.
Result<LoraConfig> ReadLoraConfig(Env& env, const std::string& path);
// The keys of such a file that PEFT 0.21 does not know, as in a newer version's. PEFT warns of them, too.
Result<std::vector<std::string>> UnknownLoraKeys(Env& env, const std::string& path);
// The keys that all recent versions of PEFT read, sorted, indented by 2; patterns keep their order, which has a
// meaning.
std::string FormatLoraConfig(const LoraConfig& config);

}  // namespace temper
