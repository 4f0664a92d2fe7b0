#include "run/columns_of_run.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "checkpoint/training_state.h"
#include "config/run_options.h"
#include "data/records.h"
#include "format/data_file_name.h"
#include "run/data_request.h"

namespace temper {
namespace {

// Whether the first rows of all files have a known format.
bool CanRead(Env& env, const DataSources& sources, const RowColumns& columns, RowUse use) {
  const auto inputs = FindInputs(env, sources, columns, use, "data");
  return inputs.ok() && std::all_of(inputs->begin(), inputs->end(), [&](const DataInput& input) {
           return KindOfDataFile(input.path) == DataFileKind::kText ||
                  RecordReader::Open(env, input.path, input.columns, use).ok();
         });
}

}  // namespace

RowColumns ColumnsAsTrained(Env& env, const std::string& folder, const DataSources& sources, const RowColumns& columns,
                            RowUse use) {
  const std::string path = JoinPath(folder, kRunConfigFile);
  const bool given = !columns.empty() || std::any_of(sources.begin(), sources.end(),
                                                     [](const DataSource& source) { return !source.columns.empty(); });
  if (given || use == RowUse::kFields || !env.IsFile(path) || CanRead(env, sources, columns, use)) return columns;
  const auto text = ReadTextFile(env, path);
  if (!text.ok()) return columns;
  const auto trained = ParseRunConfig(*text, path);
  if (!trained.ok()) return columns;
  for (const DataSources* files : {&trained->data.eval_data, &trained->data.data}) {
    for (const DataSource& source : *files) {
      RowColumns theirs = Combined(trained->data.columns, source.columns);
      if (theirs.empty() || !CanRead(env, sources, theirs, use)) continue;
      LogInfo(fmt::format("columns     {}, as in {}", ToString(theirs), path));
      return theirs;
    }
  }
  return columns;
}

}  // namespace temper
