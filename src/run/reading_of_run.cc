#include "run/reading_of_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/log.h"
#include "checkpoint/training_state.h"
#include "config/run_options.h"
#include "data/records.h"
#include "format/data_file_name.h"
#include "format/json.h"
#include "run/data_request.h"

namespace temper {
namespace {

// Whether the first rows of all files have a known format.
bool CanRead(Env& env, const DataSources& sources, const RowReading& reading, RowUse use) {
  const auto inputs = FindInputs(env, sources, reading, use, "data");
  return inputs.ok() && std::all_of(inputs->begin(), inputs->end(), [&](const DataInput& input) {
           return KindOfDataFile(input.path) == DataFileKind::kText ||
                  RecordReader::Open(env, input.path, input.reading, use).ok();
         });
}

std::optional<RunConfig> RunOf(Env& env, const std::string& path) {
  if (!env.IsFile(path)) return std::nullopt;
  const auto text = ReadTextFile(env, path);
  if (!text.ok()) return std::nullopt;
  auto run = ParseRunConfig(*text, path);
  return run.ok() ? std::optional(*std::move(run)) : std::nullopt;
}

template <class Has>
bool AnySource(const DataSources& sources, const Has& has) {
  return std::any_of(sources.begin(), sources.end(), has);
}

}  // namespace

RowReading ReadingAsTrained(Env& env, const std::string& folder, const DataSources& sources, const RowReading& reading,
                            RowUse use) {
  const std::string path = JoinPath(folder, kRunConfigFile);
  const std::optional<RunConfig> trained = FactsOf(use).by_template ? std::nullopt : RunOf(env, path);
  if (!trained) return reading;
  std::vector<RowReading> theirs = {trained->data.reading};
  for (const DataSources* files : {&trained->data.eval_data, &trained->data.data}) {
    for (const DataSource& source : *files) theirs.push_back(Combined(trained->data.reading, source));
  }
  RowReading out = reading;
  const auto say = [&](const char* what, const std::string& value) {
    LogInfo(fmt::format("{:<11} {}, as in {}", what, value, path));
  };
  if (reading.roles.empty() && !AnySource(sources, [](const DataSource& source) { return !source.roles.empty(); })) {
    for (const RowReading& one : theirs) out.roles = Combined(out.roles, one.roles);
    if (!out.roles.empty()) say("roles", ToString(out.roles));
  }
  if (reading.separator == kParagraph && trained->data.reading.separator != kParagraph) {
    out.separator = trained->data.reading.separator;
    say("separator", DumpJson(OrderedJson(out.separator)));
  }
  const bool given =
      !reading.columns.empty() || AnySource(sources, [](const DataSource& source) { return !source.columns.empty(); });
  if (!given && !CanRead(env, sources, out, use)) {
    for (const RowReading& one : theirs) {
      if (one.columns.empty()) continue;
      RowReading with_columns = out;
      with_columns.columns = one.columns;
      if (!CanRead(env, sources, with_columns, use)) continue;
      out = std::move(with_columns);
      say("columns", ToString(out.columns));
      break;
    }
  }
  return out;
}

std::string RowTemplateAsTrained(Env& env, const std::string& folder, const DataSources& sources,
                                 const RowReading& reading, RowUse use) {
  const std::string path = JoinPath(folder, kRunConfigFile);
  const RowFacts& rows = FactsOf(use);
  const bool may_have = rows.no_row_template == nullptr && !rows.by_template;
  const std::optional<RunConfig> trained = may_have ? RunOf(env, path) : std::nullopt;
  if (!trained || trained->data.row_template.empty() || CanRead(env, sources, reading, use)) return "";
  LogInfo(fmt::format("rows        by the row_template in {}", path));
  return trained->data.row_template;
}

}  // namespace temper
