#include "run/data_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/data_file_name.h"
#include "format/data_file_pattern.h"
#include "format/hub_cache.h"

namespace temper {

RowUse RowUseOf(const ObjectiveRule& objective, const std::string& row_template) {
  const bool by_template = !row_template.empty() && FactsOf(objective.rows).no_row_template == nullptr;
  return by_template ? RowUse::kFields : objective.rows;
}

RowUse RowUseOf(const RunConfig& config) {
  return RowUseOf(*config.objective.rule, config.data.row_template);
}

DataRequest TrainingData(const RunConfig& config) {
  return {.sources = config.data.data,
          .reading = config.data.reading,
          .use = RowUseOf(config),
          .max_seq_len = *config.data.max_seq_len,
          .train_on_prompt = config.data.train_on_prompt,
          .skip_bad_rows = config.data.skip_bad_rows,
          .template_date = config.data.template_date,
          .chat_template_kwargs = config.data.chat_template_kwargs,
          .row_template = config.data.row_template,
          .reasoning_turns = config.data.reasoning_turns,
          .long_rows = config.data.long_rows,
          .threads = static_cast<int>(*config.machine.threads),
          .cache = config.data.data_cache};
}

RowReading Combined(const RowReading& of_run, const DataSource& source) {
  return {.columns = Combined(of_run.columns, source.columns),
          .roles = Combined(of_run.roles, source.roles),
          .separator = of_run.separator};
}

Result<std::vector<DataInput>> FindInputs(Env& env, const DataSources& sources, const RowReading& reading, RowUse use,
                                          const char* option) {
  std::vector<DataInput> inputs;
  for (const DataSource& source : sources) {
    TEMPER_ASSIGN_OR_RETURN(std::string path, FindDataFile(env, source.path, option));
    // A plan may name what does not exist yet.
    if (env.IsFolder(path) || IsPattern(path)) TEMPER_RETURN_IF_ERROR(DataFilesOf(env, path, option).status());
    if (source.max_samples && KindOfDataFile(path) == DataFileKind::kText) {
      return InvalidArgument(
          fmt::format("--{} {}: max_samples counts rows, and a text file is one document: remove it", option, path));
    }
    if (!(source.columns.empty() && source.roles.empty()) && KindOfDataFile(path) == DataFileKind::kText) {
      return InvalidArgument(fmt::format("--{} {}: a text file is one document and has no {}: remove them", option,
                                         path, source.columns.empty() ? "roles" : "columns"));
    }
    if (!env.IsFile(path) && !env.IsFolder(path) && path.find(',') != std::string::npos) {
      return NotFound(
          fmt::format("--{} {}: there is no such file; for several files repeat --{}", option, path, option));
    }
    inputs.push_back({.path = std::move(path)});
    inputs.back().use = use;
    inputs.back().reading = Combined(reading, source);
    if (source.max_samples) inputs.back().max_rows = *source.max_samples;
  }
  return inputs;
}

std::vector<SamplePasses> PassesOf(const Dataset& dataset, const DataSources& sources) {
  if (std::all_of(sources.begin(), sources.end(), [](const DataSource& s) { return s.passes == 1; })) return {};
  std::vector<SamplePasses> passes;
  for (size_t i = 0; i < sources.size(); ++i) passes.push_back({dataset.files[i].first_sample, sources[i].passes});
  return passes;
}

}  // namespace temper
