// Data sets as other tools name them: names in LLaMA-Factory's dataset_info.json, lists of mappings in Axolotl and TRL.
#pragma once

#include <string>
#include <vector>

#include "base/env.h"
#include "format/json.h"
#include "objective/row_use.h"
#include "settings/data_sources.h"

namespace temper {

struct ForeignData {
  DataSources files;  // paths, or names of the Hub; what is read of them
  // What changes meaning, what has no equivalent, and what needs no setting here: a sentence each.
  std::vector<std::string> changed, lost, needless;
  std::string chat_template;  // that writes what the tool does by itself; empty: none of that kind
  std::string row_template;   // that makes a text of the rows, of all data sets; empty: rows have a format
  std::string separator;      // between the fields of a prompt, where it is not ours; empty: it is
};

// `names`: one text ("identity,alpaca_en_demo") or a list. dataset_info.json is looked for in `dataset_dir`, as seen
// from the working folder, from `file`'s folder and from the folders above that. `rows`: what the run reads.
ForeignData LlamaFactoryData(Env& env, const OrderedJson& names, const std::string& dataset_dir,
                             const std::string& file, RowUse rows = RowUse::kAnswers);

// Axolotl's `datasets`, and TRL's. Of a folder those files count whose names are of the split.
ForeignData ListedData(Env& env, const OrderedJson& list, RowUse rows = RowUse::kAnswers);

}  // namespace temper
