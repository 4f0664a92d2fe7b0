// The options that take the data files of a run:
//   --data a.jsonl --data b.jsonl:passes=0.5,max_samples=1000
//   data: [a.jsonl, {path: b.jsonl, passes: 0.5, max_samples: 1000}]
//   --data a.jsonl:columns=prompt=frage,completion=antwort --data folder:split=train
// The part after the last ':' of a text is settings if it begins with KEY=; for a path that ends so itself there is the
// map.
#pragma once

#include <string>

#include "config/option.h"
#include "settings/data_sources.h"

namespace temper {

// An option that may be repeated: each time adds a file. Errors: an unknown setting, a file that is given twice.
// `has_passes`: for evaluation, which sees every sample once, there is only max_samples.
Option DataOption(std::string name, DataSources& sources, std::string help, bool has_passes);

}  // namespace temper
