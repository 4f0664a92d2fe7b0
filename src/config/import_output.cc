#include "config/import_output.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "format/json.h"
#include "format/quoted.h"
#include "settings/best_metric.h"

namespace temper {
namespace {

// Files of a checkpoint of ours (docs/formats/checkpoint.md): other tools' checkpoints have none of these.
bool IsOwnCheckpoint(Env& env, const std::string& folder) {
  return env.IsFile(JoinPath(folder, "manifest.json")) && env.IsFile(JoinPath(folder, "run.yaml"));
}

// Names of the share of tokens that are predicted: LLaMA-Factory's with compute_accuracy, TRL's always.
bool IsTokenAccuracy(const Translation& run, std::string_view name) {
  if (run.task.rule != nullptr) return false;
  if (name.starts_with("eval_")) name.remove_prefix(5);
  return name == "mean_token_accuracy" || (run.tool() == ForeignTool::kLlamaFactory && name == "accuracy");
}

}  // namespace

void TakeReport(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const OrderedJson list = setting.value.is_array() ? setting.value : OrderedJson::array({setting.value});
  bool tensorboard = false;
  for (const OrderedJson& one : list) {
    const std::string name = one.is_string() ? one.get<std::string>() : DumpJson(one);
    if (name == "none" || name == "false") continue;
    tensorboard = true;  // a run that is followed elsewhere is followed there
    if (name != "tensorboard" && name != "all") {
      run.result.lost.push_back(fmt::format("{}, {}: {}: only metrics.jsonl and TensorBoard are written",
                                            setting.Place(), setting.name, Quoted(name)));
    }
  }
  run.Set(foreign.ours, tensorboard, setting);
}

void TakeBestMetric(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string name = setting.Text();
  if (name == "loss" || name == "eval_loss") {
    if (!run.SaysNothing(setting)) run.Needless(setting, "evaluations are compared by their loss");
    return;
  }
  RunConfig probe;
  probe.objective.rule = run.task.rule == nullptr ? &Sft() : run.task.rule;
  const std::string ours = IsTokenAccuracy(run, name) ? "eval_token_accuracy" : name;
  probe.output.token_accuracy = ours != name;
  probe.output.metric_for_best_model = ours;
  const auto metric = BestMetricOf(probe);
  if (!metric.ok()) {
    return run.Lost(setting, metric.status().message());
  }
  if (ours != name) run.Set("token_accuracy", true, setting);
  run.Set(foreign.ours, ours, setting);
  // As transformers, by the name alone.
  if (run.Given("greater_is_better") == nullptr && metric->greater_is_better == name.ends_with("loss")) {
    run.SetDefault("greater_is_better", metric->greater_is_better ? "false" : "true");
  }
}

void TakeTokenAccuracy(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  if (run.task.rule != nullptr) {
    return run.Needless(setting, fmt::format("task {} reports its own accuracy", run.task.rule->name));
  }
  run.Set(foreign.ours, setting.value, setting);
}

// `overwrite` would delete what is resumed, and other tools do not delete it.
void TakeResume(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  if (setting.value == true) {  // from the newest of the output folder
    run.Set(foreign.ours, true, setting);
  } else if (!setting.value.is_string()) {
    return run.Fail(setting, "the folder of a checkpoint is expected");
  } else if (IsOwnCheckpoint(run.env(), setting.Text())) {
    run.Set(foreign.ours, setting.Text(), setting);
  } else {
    const bool there = run.env().IsFolder(setting.Text());
    return run.Fail(setting,
                    fmt::format("{}: leave the setting out to start from the model, or give the weights of that "
                                "run as the model or the adapter",
                                there ? "this is a checkpoint of another tool, which cannot be continued"
                                      : "there is no such folder with a checkpoint of Temper"));
  }
}

void TakeOverwrite(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  for (const char* const name : {"resume_from_checkpoint", "auto_resume_from_checkpoints"}) {
    const ForeignSetting* const resumed = run.Given(name);
    if (resumed == nullptr || resumed->value == false || setting.value == false) continue;
    return run.Needless(setting, fmt::format("{} goes on with what is there: left out", name));
  }
  run.Set(foreign.ours, setting.value, setting);
}

}  // namespace temper
