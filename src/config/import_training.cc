#include "config/import_training.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "config/foreign_objective.h"
#include "format/json.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

// Of names with commas between them.
OrderedJson NamesIn(const std::string& text) {
  OrderedJson names = OrderedJson::array();
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    std::string name = text.substr(from, to - from);
    std::erase(name, ' ');
    if (!name.empty()) names.push_back(name);
    from = to + 1;
  }
  return names;
}

}  // namespace

// With bf16 weights are computed in bf16 beside f32 weights, as here.
void TakeLoadedDtype(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string value = setting.Text();
  const ForeignSetting* const bf16 = run.Given("bf16");
  if (value == "auto" || (bf16 != nullptr && bf16->Text() == "true")) {
    return run.Needless(setting, "the optimizer's weights are f32 in any case");
  }
  const bool half = value == "bfloat16" || value == "bf16";
  if (!half && value != "float32" && value != "fp32" && value != "f32") {
    return run.Lost(setting, foreign.note);
  }
  run.Set("dtype", half ? "bf16" : "f32", setting);
}

void TakeModules(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  OrderedJson value = setting.value;
  if (value.is_array() && value.size() == 1) value = value[0];
  if (value == "all" || value == "all-linear") {
    value = "all-linear";
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    // Names with commas; anything else that is not a name is a regular expression, as in PEFT.
    if (text.find_first_of("*.()[]|^$\\") == std::string::npos) value = NamesIn(text);
  }
  run.Set(foreign.ours, value, setting);
}

void TakeSavedModules(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const bool text = setting.value.is_string();
  run.Set(foreign.ours, text ? NamesIn(setting.value.get<std::string>()) : setting.value, setting);
}

void TakeOptimizer(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string name = setting.Text();
  for (const UpdateRule* rule : UpdateRules()) {
    const bool variant = IsListed(rule->other_variants, name);
    if (name != rule->name && !variant && !IsListed(rule->other_names, name)) continue;
    if (variant) {
      run.Changed(setting, fmt::format("{}, whose states are {} here and stay in memory (memory.optimizer)", rule->name,
                                       rule->states_are));
    }
    return run.Set("optimizer", std::string(rule->name), setting);
  }
  run.Lost(setting, fmt::format("{} counts in its place; {}", DefaultUpdateRule().name, foreign.note));
}

void TakeInitLoraWeights(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  const std::string how = setting.Text();
  if (how == "true" || how == "pissa" || how == "olora" || how.starts_with("pissa_niter_"))
    return run.Set(foreign.ours, how, setting);
  run.Lost(setting, foreign.note);
}

void TakeNeedless(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  run.Needless(setting, foreign.note);
}

// Its steps are scaled as those of Moonlight (Liu et al. 2025), to the size of AdamW's; its optim does not count then.
void TakeUseMuon(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting) || !run.IsTrue(setting.name)) return;
  run.Forget("optimizer");
  run.Set(foreign.ours, "muon", setting);
  run.Set("muon_match_rms_adamw", true, setting);
  run.Changed(setting, "matrices outside of blocks are AdamW's here; a mesh must leave matrices whole (dp, pp)");
}

void TakeSchedule(Translation& run, const ForeignSetting& setting, const ForeignName&) {
  run.Set("lr_scheduler_type", setting.value, setting);
}

// A mapping with our names, or JSON text of one.
void TakeScheduleKwargs(Translation& run, const ForeignSetting& setting, const ForeignName&) {
  const auto parsed = setting.value.is_string() ? ParseYamlValue(setting.Text(), run.file()) : Result(setting.value);
  if (!parsed.ok() || !parsed->is_object()) {
    return run.Lost(setting, "a mapping of settings is expected");
  }
  for (auto it = parsed->begin(); it != parsed->end(); ++it) {
    const std::string name = "lr_scheduler_kwargs." + it.key();
    if (run.options.Find(name) == nullptr) {
      run.Lost(setting, fmt::format("{} has no equivalent", it.key()));
    } else if (!it.value().is_null()) {
      run.Set(name, it.value(), setting);
    }
  }
}

void TakeSteps(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const double steps = setting.value.is_number() ? setting.value.get<double>() : 0;
  const bool part = steps > 0 && steps < 1;
  if (part && foreign.ours == "max_steps") return run.Lost(setting, "a number of steps is expected");
  // Axolotl writes floats.
  const bool whole = setting.value.is_number_float() && std::abs(steps) < 1e9 && steps == std::floor(steps);
  run.Set(foreign.ours, whole ? OrderedJson(static_cast<int64_t>(steps)) : setting.value, setting);
}

// As transformers: a fraction is a ratio, and warmup_ratio counts where there are 0 steps.
void TakeWarmup(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const double steps = setting.value.is_number() ? setting.value.get<double>() : 1;
  if (steps == 0 && run.Given("warmup_ratio") != nullptr) {
    if (!run.SaysNothing(setting)) run.Needless(setting, "warmup_ratio counts");
    return;
  }
  if (steps > 0 && steps < 1) return run.Set("warmup_ratio", setting.value, setting);
  TakeSteps(run, setting, foreign);
}

// As transformers: only a number above 0 counts.
void TakeMaxSteps(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (!setting.value.is_number() || setting.value.get<double>() > 0) return TakeSteps(run, setting, foreign);
  if (!run.SaysNothing(setting)) run.Needless(setting, "num_train_epochs counts");
}

// Times an epoch, as Axolotl turns it into a part of the run.
void TakePerEpoch(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  if (!setting.value.is_number()) return run.Fail(setting, "a number is expected");
  if (setting.value == 0) return run.Needless(setting, "it is not by epochs");
  const ForeignSetting* const given = run.Given("num_epochs");
  const double epochs = given != nullptr && given->value.is_number() ? given->value.get<double>() : 1;
  const double times = setting.value.get<double>() * epochs;
  if (times <= 1) return run.Lost(setting, "at most once in the run; it comes at the end in any case");
  run.Set(foreign.ours, 1 / times, setting);
}

}  // namespace temper
