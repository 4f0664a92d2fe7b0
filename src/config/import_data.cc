#include "config/import_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "config/first_row.h"
#include "config/foreign_data.h"
#include "format/data_file_pattern.h"
#include "format/data_split.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

bool HasTemplate(const Translation& run, const std::string& name) {
  const auto& all = run.import().templates;
  return std::find(all.begin(), all.end(), name) != all.end();
}

void TakeData(Translation& run, const ForeignData& data, const ForeignSetting& setting, const ForeignName& foreign) {
  const bool has_passes = foreign.ours == "data";
  DataSources files;
  for (const DataSource& file : data.files) {
    const auto same =
        std::find_if(files.begin(), files.end(), [&](const DataSource& other) { return other.path == file.path; });
    if (same == files.end()) {
      files.push_back(file);
    } else if (has_passes && same->max_samples == file.max_samples) {
      same->passes += 1;
    } else {
      run.result.lost.push_back(
          fmt::format("{}, {}: {} is given twice; the first counts", setting.Place(), setting.name, file.path));
    }
  }
  OrderedJson list = OrderedJson::array();
  for (const DataSource& file : files) {
    OrderedJson entry = {{"path", file.path}};
    if (file.passes != 1) entry["passes"] = file.passes;
    if (file.max_samples) entry["max_samples"] = *file.max_samples;
    for (const RowColumn& column : file.columns) entry["columns"][column.field] = column.column;
    for (const RowRole& role : file.roles) entry["roles"][role.role].push_back(role.name);
    list.push_back(std::move(entry));
  }
  if (!list.empty()) run.Set(foreign.ours, list, setting);
  if (!data.chat_template.empty() && HasTemplate(run, data.chat_template)) {
    run.Set("chat_template", data.chat_template, setting);
  }
  if (!data.row_template.empty()) run.Set("row_template", data.row_template, setting);
  if (!data.separator.empty()) run.Set("prompt_separator", data.separator, setting);
  for (const auto& [from, to] : {std::pair(&data.changed, &run.result.changed),
                                 {&data.lost, &run.result.lost},
                                 {&data.needless, &run.result.needless}}) {
    for (const std::string& sentence : *from) to->push_back(fmt::format("{}, {}", setting.Place(), OneLine(sentence)));
  }
}

// A run of TRL evaluates if it says so, on another split of its data set.
bool EvaluatesASplit(const Translation& run) {
  const ForeignSetting* strategy = run.Given("eval_strategy");
  if (strategy == nullptr) strategy = run.Given("evaluation_strategy");
  return strategy != nullptr && strategy->value != false && strategy->Text() != "no";
}

std::string SplitFor(const Translation& run, const char* name, const char* fallback) {
  const ForeignSetting* const given = run.Given(name);
  return given == nullptr ? fallback : given->Text();
}

}  // namespace

void TakeNamedData(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const ForeignSetting* const folder = run.Given("dataset_dir");
  const std::string& file = setting.file.empty() ? run.file() : setting.file;
  TakeData(run,
           LlamaFactoryData(run.env(), setting.value, folder == nullptr ? "data" : folder->Text(), file, run.Rows()),
           setting, foreign);
}

void TakeListOfData(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  TakeData(run, ListedData(run.env(), setting.value, run.Rows()), setting, foreign);
}

// A folder's files by their splits; other names are one file, of which Temper reads no splits.
void TakeDatasetName(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string name = setting.Text();
  const std::string train = SplitFor(run, "dataset_train_split", "train"),
                    test = SplitFor(run, "dataset_test_split", "test");
  const bool evaluates = EvaluatesASplit(run);
  std::vector<std::string> files;
  if (run.env().IsFolder(name)) {
    if (auto found = DataFilesOf(run.env(), name, "data"); found.ok()) files = *std::move(found);
  }
  const bool has_splits =
      std::any_of(files.begin(), files.end(), [](const std::string& file) { return !SplitOfFile(file).empty(); });
  const auto take = [&](const std::string& split, const char* option) {
    const std::vector<std::string> of_split = FilesOfSplit(files, split);
    if (of_split.empty()) return false;
    if (of_split.size() == 1) run.Set(option, of_split[0], setting);
    if (of_split.size() > 1) run.Set(option, of_split, setting);
    return true;
  };
  if (!has_splits) {
    run.Set(foreign.ours, name, setting);
  } else if (!take(train, "data")) {
    run.Set(foreign.ours, name, setting);
    run.Lost(setting, fmt::format("none of its files has the name of the split {}: name the files to train on", train));
  }
  if (!evaluates || (has_splits && take(test, "eval_data"))) return;
  run.result.lost.push_back(
      fmt::format("{}, {}: {}: TRL evaluates on the split {} of it: add eval_data: {}, the file of that split, or "
                  "eval_fraction: 0.05",
                  setting.Place(), setting.name, OneLine(name), test,
                  run.env().IsFile(name) ? "FILE" : JoinPath(name, test + ".jsonl")));
}

void TakeSplit(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const ForeignSetting* const data = run.Given("dataset_name");
  if (run.SaysNothing(setting) || (data != nullptr && run.env().IsFolder(data->Text()))) return;
  if (!foreign.ours.empty()) return run.Set(foreign.ours, setting.value, setting);
  run.Lost(setting, foreign.note);
}

// A part of the rows, or their number.
void TakeHeldOut(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (setting.value.is_number() && setting.value.get<double>() >= 1) {
    return run.Lost(setting, "rows are held out as a fraction: eval_fraction: 0.05");
  }
  run.Set(foreign.ours, setting.value == false ? OrderedJson(0) : setting.value, setting);
}

// Of each file.
void TakeMaxSamples(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (!setting.value.is_number()) return run.Fail(setting, "a number of rows is expected");
  if (!setting.value.is_number_integer() || setting.value.get<int64_t>() < 1) {
    return run.Lost(setting, "a number of rows, at least 1, is expected");
  }
  // LLaMA-Factory's counts for evaluation, too.
  const bool both = setting.name == "max_samples";
  const bool training = foreign.ours == "data";
  bool taken = false;
  for (DataSources* files :
       {training ? &run.config.data.data : nullptr, training && !both ? nullptr : &run.config.data.eval_data}) {
    if (files == nullptr) continue;
    for (DataSource& file : *files) {
      const auto most = setting.value.get<int64_t>();
      file.max_samples = std::min(file.max_samples.value_or(most), most);  // a data set may have its own
      taken = true;
    }
  }
  if (!taken) run.Lost(setting, "no file is given that it could count for");
}

// Of rows that are one text.
void TakeTextField(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string column = setting.Text();
  if (column == "text") return;
  if (column.empty()) return run.Lost(setting, "the name of a column is expected");
  run.Set(foreign.ours, OrderedJson{{"text", column}}, setting);
}

void TakeTemplateVariable(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  if (run.SaysNothing(setting)) return;
  run.Changed(setting, run.SetTemplateVariable(setting) ? std::string_view(foreign.note)
                                                        : "chat_template_kwargs has it, which counts");
}

// Other tools write these templates by themselves; Temper takes a model's own by default.
void TakeNamedTemplate(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string name = setting.Text();
  if (name == "tokenizer_default") return;  // the default, here too
  if (name == "jinja") return run.Needless(setting, "the template is that of chat_template_jinja");
  if (name.find("{%") != std::string::npos || name.find("{{") != std::string::npos) {
    return TakeTemplateFile(run, setting, foreign);
  }
  std::string ours = name;  // some write an underscore before the version
  std::erase(ours, '_');
  if (!HasTemplate(run, ours)) {
    return run.Changed(setting, "the model's own chat template is used; a model without one needs chat_template");
  }
  run.Changed(setting, "Temper's template of that name is used; without it, the model's own");
  run.Set(foreign.ours, ours, setting);
}

void TakeTemplateFile(Translation& run, const ForeignSetting& setting, const ForeignName& foreign) {
  const std::string file = setting.Text();
  if (file.ends_with(".jinja") || run.env().IsFile(file)) return run.Set(foreign.ours, file, setting);
  run.Lost(setting, "write the template to a file: chat_template: FILE");
}

// Another tokenizer than the model's.
void TakeTokenizer(Translation& run, const ForeignSetting& setting, const ForeignName&) {
  if (run.SaysNothing(setting)) return;
  for (const char* const name : {"model_name_or_path", "base_model", "model"}) {
    const ForeignSetting* const model = run.Given(name);
    if (model != nullptr && model->value == setting.value)
      return run.Needless(setting, "it is that of the model's folder");
  }
  run.Lost(setting, "the tokenizer is that of the model's folder: put its files there");
}

void CompleteData(Translation& run) {
  if (run.config.data.data.empty()) {
    run.result.lost.emplace_back("the recipe names no data: add data: FILE");
    return;
  }
  if (run.tool() != ForeignTool::kTrl || run.task.rule != nullptr || run.IsSet("train_on_prompt")) return;
  // TRL counts what the assistant says only where it is asked to; of a prompt and its completion the completion.
  const auto fields = FieldsOfFirstRow(run.env(), run.config.data.data[0].path);
  if (fields && (fields->contains("messages") || fields->contains("conversations"))) {
    return run.SetDefault("train_on_prompt", "true", "the default of TRL for rows with messages");
  }
  if (fields) return;
  run.result.changed.emplace_back(
      "assistant_only_loss is not given: TRL trains on every token of rows with messages; here only on what the "
      "assistant says (train_on_prompt: true for every token)");
}

}  // namespace temper
