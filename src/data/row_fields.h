// The fields of a row beside those that it is made of: which of them its format does not read, and which change what
// the row means, so that it is refused rather than read without them. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "data/record_format.h"
#include "format/json.h"

namespace temper {

// In the row's order; those without a value (null, "", [], {}) are left out. REQUIRES: `row` is an object.
std::vector<std::string> UnreadFields(const OrderedJson& row, RecordFormat format);

// Errors: images, sound or videos, which the model does not get; preferences (chosen and rejected); an answer that is
// labelled as one to avoid. REQUIRES: `row` is an object.
Status CheckMeaning(const OrderedJson& row, RecordFormat format, const std::string& where);

}  // namespace temper
