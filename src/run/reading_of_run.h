// How the run that trained a model read its data: rows of the same kind are measured without saying it again.
#pragma once

#include <string>

#include "base/env.h"
#include "format/row_reading.h"
#include "objective/row_use.h"
#include "settings/data_sources.h"

namespace temper {

// `reading`, completed from the run.yaml in `folder`, a run's output: columns, where the user gave none and the first
// rows of `sources` cannot be read without; roles and the separator of a prompt's fields, where the user gave none.
// Says what it takes.
RowReading ReadingAsTrained(Env& env, const std::string& folder, const DataSources& sources, const RowReading& reading,
                            RowUse use);

// The row template of that run, if there is one and `sources` cannot be read without, as `reading` says; else empty.
// Says so.
std::string RowTemplateAsTrained(Env& env, const std::string& folder, const DataSources& sources,
                                 const RowReading& reading, RowUse use);

}  // namespace temper
