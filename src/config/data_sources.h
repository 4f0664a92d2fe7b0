// DataSources: the data files of a run, in order, each with how much of it is used; and the option that takes them:
//   --data a.jsonl --data b.jsonl:passes=0.5,max_samples=1000
//   data: [a.jsonl, {path: b.jsonl, passes: 0.5, max_samples: 1000}]
// The part after the last ':' of a text is settings if it begins with KEY=; for a path that ends so itself there is the
// map. A value type; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/option.h"

namespace temper {

struct DataSource {
  std::string path;                    // of a file, or the name of a data set in the Hugging Face cache
  double passes = 1;                   // how often an epoch sees each of its samples (data/packing.h)
  std::optional<int64_t> max_samples;  // only its first rows are used
  bool operator==(const DataSource&) const = default;
};
using DataSources = std::vector<DataSource>;

// An option that may be repeated: each time adds a file. Errors: an unknown setting, a file that is given twice.
// `has_passes`: for evaluation, which sees every sample once, there is only max_samples.
Option DataOption(std::string name, DataSources& sources, std::string help, bool has_passes);

// The paths, for people: "a.jsonl, b.jsonl".
std::string PathsOf(const DataSources& sources);

// Whether two lists use their files in the same way, wherever these are: the same passes and max_samples.
bool SameUse(const DataSources& a, const DataSources& b);

}  // namespace temper
