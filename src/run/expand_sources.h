// ExpandSources: the data files of a run, where its user names folders and patterns (format/data_file_pattern.h).
#pragma once

#include <string>

#include "base/env.h"
#include "settings/data_sources.h"

namespace temper {

struct Expansion {
  const char* option = "data";          // that gave the sources, for messages
  std::string output_dir;               // of the run; may be empty
  const DataSources* before = nullptr;  // of a run that is resumed: the files that it began with
};

// `sources` with a file for each that a folder or a pattern stands for, in its place and used as it says; what
// runs write into `output_dir` is left out (OutputFolder::Writes). If these are the files of `before` and others that a
// folder or a pattern has now, too, the result is without the others. Logs what is left out. Errors: a source stands
// for no file; a file is there twice.
Result<DataSources> ExpandSources(Env& env, const DataSources& sources, const Expansion& how);

}  // namespace temper
