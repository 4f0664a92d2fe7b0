#include "config/import_rows.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/foreign_tools.h"
#include "config/validate.h"
#include "format/yaml.h"

namespace temper {
namespace {

// Whether the tool fills rows with several documents without being asked to, and how these are kept apart there.
bool FillsRows(const Translation& run) {
  if (run.tool() == ForeignTool::kLlamaFactory) {
    const ForeignSetting* const stage = run.Given("stage");
    return stage != nullptr && stage->Text() == "pt";
  }
  // Axolotl joins the texts of a stream (pretraining_sample_concatenation).
  const ForeignSetting* const joins = run.Given("pretraining_sample_concatenation");
  return run.tool() == ForeignTool::kAxolotl && run.Given("pretraining_dataset") != nullptr &&
         (joins == nullptr || joins->value != false);
}

const ForeignSetting* PackingOf(const Translation& run) {
  const ForeignSetting* const packing = run.Given("packing");
  return packing != nullptr ? packing : run.Given("sample_packing");
}

// The number of processes in accelerate's own configuration; 0: the file is not here, or does not say it.
int64_t ProcessesOf(Translation& run, const ForeignSetting& launcher) {
  const auto document = ReadYamlFile(run.env(), FoundNear(run.env(), launcher.Text(), run.file()));
  if (!document.ok() || !document->value.is_object()) return 0;
  const auto found = document->value.find("num_processes");
  return found != document->value.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// What the data sets of a recipe of Axolotl are by their types.
struct AxolotlRows {
  bool texts = false, others = false;
};

AxolotlRows RowsOfAxolotl(const Translation& run) {
  AxolotlRows rows;
  for (const char* const name : {"pretraining_dataset", "datasets"}) {
    const ForeignSetting* const given = run.Given(name);
    if (given == nullptr) continue;
    const OrderedJson list = given->value.is_array() ? given->value : OrderedJson::array({given->value});
    for (const OrderedJson& entry : list) {
      const auto type = entry.is_object() ? entry.find("type") : entry.end();
      const bool named = entry.is_object() && type != entry.end() && type->is_string();
      const std::string kind = named ? type->get<std::string>() : "";
      const bool text = name == std::string_view("pretraining_dataset") || kind == "completion" || kind == "pretrain";
      (text ? rows.texts : rows.others) = true;
    }
  }
  return rows;
}

}  // namespace

void TakePadding(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  const ForeignSetting* const packing = PackingOf(run);
  const bool packed = packing == nullptr ? FillsRows(run) : packing->value == true;
  if (packed) return run.Needless(setting, "packed rows are always max_seq_len long");
  if (setting.name == "pad_to_sequence_len" && setting.value == true) {
    return run.Set("pad_to_max_seq_len", "true", setting);
  }
  run.Needless(setting, foreign.note);
}

void TakePackedEvaluation(Translation& run, const ForeignSetting& setting, const ForeignName&) {
  if (run.SaysNothing(setting)) return;
  const ForeignSetting* const packing = PackingOf(run);
  const bool packs = packing != nullptr && packing->value == true;
  if (setting.value == packs) return run.Needless(setting, "evaluation packs where training does");
  run.Lost(setting, fmt::format("evaluation packs where training does, which is {} here", packs));
}

void TakeExcessLength(Translation&, const ForeignSetting&, const ForeignName&) {}  // TranslateLongRows

void TakeProcesses(Translation&, const ForeignSetting&, const ForeignName&) {}  // CompareSteps

void TakeShardedRanks(Translation&, const ForeignSetting&, const ForeignName&) {}  // CompareSteps

void TranslatePacking(Translation& run) {
  const std::string_view tool = ToString(run.tool());
  const ForeignSetting* const given = PackingOf(run);
  const bool neat = run.IsTrue("neat_packing");
  const bool asks = (given != nullptr && given->value == true) || neat;
  if (asks || (given == nullptr && FillsRows(run))) {
    if (run.tool() == ForeignTool::kLlamaFactory && !neat) {
      run.result.changed.emplace_back(
          "packed documents are isolated from each other; LLaMA-Factory's see each other without neat_packing");
    } else if (!asks) {
      run.result.changed.push_back(fmt::format(
          "rows hold several documents, isolated from each other; those that {} joins see each other", tool));
    }
    return;
  }
  const std::string what = fmt::format(
      "each document has a row of its own, padded to {}. packing: true puts several into a row, isolated from each "
      "other: faster, with fewer steps",
      run.IsTrue("pad_to_sequence_len") ? "max_seq_len; without pad_to_max_seq_len to the shortest of some lengths"
                                        : "the shortest of a few lengths that holds those of a micro-batch");
  if (given == nullptr) {
    run.SetDefault("packing", "false");
    run.result.changed.push_back(fmt::format("packing is not given, and {} does not pack by default: {}", tool, what));
  } else {
    run.Changed(*given, what);
  }
}

void TranslateLongRows(Translation& run) {
  const ForeignSetting* const strategy = run.Given("excess_length_strategy");
  switch (run.tool()) {
    case ForeignTool::kAxolotl: {
      const std::string value = strategy == nullptr ? "drop" : strategy->Text();
      const AxolotlRows rows = RowsOfAxolotl(run);
      const bool cuts = value == "truncate";
      if (cuts || !rows.others || (value == "drop" && run.task.rule == &Reward())) {
        if (strategy != nullptr) {
          run.Needless(*strategy, !rows.others                 ? "texts go on in further rows"
                                  : run.task.rule == &Reward() ? "pairs that are too long are left out in any case"
                                                               : "rows are cut at the end");
        }
        return;
      }
      const char* const ours = value == "raise" ? "error" : "drop";
      if (strategy == nullptr) {
        run.SetDefault("long_rows", ours);
      } else {
        run.Set("long_rows", ours, *strategy);
      }
      if (rows.texts) {
        run.result.changed.push_back(
            fmt::format("long_rows: {} counts for texts, too; Axolotl splits those of type completion", ours));
      }
      return;
    }
    case ForeignTool::kLlamaFactory: {
      const ForeignSetting* const stage = run.Given("stage");
      if (stage != nullptr && stage->Text() == "pt") return;
      if (CheckLongRows(run.task.rule == nullptr ? Sft() : *run.task.rule, LongRows::kProportional).ok()) {
        return run.SetDefault("long_rows", "proportional", "as LLaMA-Factory cuts rows");
      }
      run.result.changed.emplace_back(
          run.task.rule == &Reward()
              ? "LLaMA-Factory cuts a pair that is longer than cutoff_len; here it is left out"
              : "a row that is longer than cutoff_len loses a part of its prompt and of its answer in LLaMA-Factory; "
                "here each answer is cut at the end");
      return;
    }
    case ForeignTool::kTrl: {
      if (run.task.rule != nullptr) return;
      const ForeignSetting* const packs = run.Given("packing_strategy");
      const bool splits = run.IsTrue("packing") && packs != nullptr && packs->Text() != "bfd";
      if (!splits) run.SetDefault("long_rows", "cut", "as TRL cuts at max_length");
      return;
    }
    case ForeignTool::kAny:
      return;
  }
}

void CompareSteps(Translation& run) {
  const ForeignSetting* of = nullptr;
  int64_t processes = 1;
  for (const char* const name : {"num_processes", "nproc_per_node", "num_gpus", "CUDA_VISIBLE_DEVICES", "nnodes"}) {
    const ForeignSetting* const given = run.Given(name);
    if (given == nullptr || !given->value.is_number_integer() || given->value.get<int64_t>() < 2) continue;
    if (std::string_view(name) == "CUDA_VISIBLE_DEVICES" && of != nullptr) continue;  // which of the machine's
    processes *= given->value.get<int64_t>();
    of = given;
  }
  const ForeignSetting* const launcher = run.Given("config_file");
  if (launcher != nullptr && of == nullptr) {
    processes = ProcessesOf(run, *launcher);
    if (processes == 1) return;
    if (processes > 1) of = launcher;
  }
  const RunConfig& c = run.config;
  const int64_t rows = c.batch.per_device_train_batch_size, times = c.batch.gradient_accumulation_steps;
  if (of != nullptr) {
    run.Changed(
        *of, fmt::format("{0} processes have {1} rows a step; one rank has {2} here: gradient_accumulation_steps: {3} "
                         "makes its steps the same (nprocs: {0} starts as many ranks on this machine)",
                         processes, processes * rows * times, rows * times, processes * times));
  }
  for (const char* const name : {"deepspeed", "fsdp", "multi_gpu", "use_deepspeed", "use_fsdp", "config_file"}) {
    const ForeignSetting* const given = run.Given(name);
    if (given == nullptr || given == of || run.SaysNothing(*given)) continue;
    if (of != nullptr) {
      run.Needless(*given, "several ranks shard weights, gradients and states by default (mesh.fsdp)");
      continue;
    }
    of = given;
    run.Changed(*given, fmt::format("a step of N processes has N times the rows; here it has {}: multiply "
                                    "gradient_accumulation_steps ({}) by N for the same steps, or start N ranks",
                                    rows * times, times));
  }
}

}  // namespace temper
