// Foreign styles: Axolotl's prompt styles for preferences ("chatml.intel", "user_defined.default"): which fields of
// rows they read, as columns of ours. Each writes the turns of one family of models by itself; here a chat template of
// that name does.
#pragma once

#include <string>

#include "format/json.h"
#include "objective/row_use.h"
#include "settings/data_sources.h"

namespace temper {

struct ForeignStyle {
  bool known = false;
  RowColumns columns;
  std::string changed;        // what of it differs here; empty: nothing
  std::string chat_template;  // that writes its turns, by name; empty: the recipe's own does
};

// `type`: of an entry of `datasets`, a text. `rows`: kPairs, kRanked or kRated.
ForeignStyle StyleOf(const std::string& type, RowUse rows);

}  // namespace temper
