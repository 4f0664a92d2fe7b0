// Names without option: settings of other tools that have none here, by the reason why. A part of the table of foreign
// names (config/foreign_names.h).
#pragma once

#include <span>

#include "config/option_set.h"

namespace temper {

struct Reason {
  const char* reason;
  const char* names;      // separated by spaces
  bool needless = false;  // it is so here anyway
  ForeignTool tool = ForeignTool::kAny;
};

std::span<const Reason> NamesWithoutOption();

inline constexpr const char* kSharesOfData =
    "each file of data has its own passes: {path: FILE, passes: P}, where P = its share * all samples / its samples";

inline constexpr const char* kGivenAnswers =
    "this belongs to a recipe for preferences, rewards or generation while training, and the file has none that is "
    "translated";

}  // namespace temper
