// DataSources: the data files of a run, in order, each with how much of it is used (config/data_option.h reads them). A
// value type; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/row_reading.h"

namespace temper {

struct DataSource {
  std::string path;                    // of a file, or the name of a data set in the Hugging Face cache
  double passes = 1;                   // how often an epoch sees each of its samples (data/packing.h)
  std::optional<int64_t> max_samples;  // only its first rows are used
  RowColumns columns = {};             // from which its fields are read; they go before the run's
  RowRoles roles = {};                 // what its speakers are called; likewise
  std::string split = {};              // of a folder or a data set, whose files of it alone are meant; "": not said
  bool operator==(const DataSource&) const = default;
};
using DataSources = std::vector<DataSource>;

// The paths, for people: "a.jsonl, b.jsonl".
std::string PathsOf(const DataSources& sources);

// Whether two lists use their files in the same way, wherever these are: the same passes, max_samples, columns and
// roles.
bool SameUse(const DataSources& a, const DataSources& b);

}  // namespace temper
