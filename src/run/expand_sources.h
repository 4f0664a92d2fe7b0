// ExpandSources: the data files of a run, where its user names folders, patterns (format/data_file_pattern.h) and data
// sets of the Hugging Face cache (format/hub_cache.h), and which split of them (format/data_split.h).
#pragma once

#include <string>

#include "base/env.h"
#include "settings/data_sources.h"

namespace temper {

struct Expansion {
  const char* option = "data";          // that gave the sources, for messages
  std::string output_dir;               // of the run; may be empty
  std::string split;                    // of sources that name none; "": train, or all files if there are no splits
  bool for_training = true;             // else a source with several splits must name one
  const DataSources* before = nullptr;  // of a run that is resumed: the files that it began with
};

// `sources` with a file for each that a folder, a pattern or a data set of several files stands for, in its place and
// used as it says, without the splits that are not meant; what runs write into `output_dir` is left out
// (OutputFolder::Writes). If these are the files of `before` and others that a folder or a pattern has now, too, the
// result is without the others. Logs what is left out. Errors: a source stands for no file; a file is there twice; a
// split is not there, or must be named.
Result<DataSources> ExpandSources(Env& env, const DataSources& sources, const Expansion& how);

}  // namespace temper
