// The columns of data by the run that trained a model: rows of the same kind are measured without naming them again.
#pragma once

#include <string>

#include "base/env.h"
#include "format/row_columns.h"
#include "objective/row_use.h"
#include "settings/data_sources.h"

namespace temper {

// `columns`, where the user gave some or the first rows of `sources` can be read with them. Else those of the run.yaml
// in `folder`, a run's output, if the rows can be read with these; then it says so.
RowColumns ColumnsAsTrained(Env& env, const std::string& folder, const DataSources& sources, const RowColumns& columns,
                            RowUse use);

}  // namespace temper
