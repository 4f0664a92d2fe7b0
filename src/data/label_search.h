// FindClasses: the classes of labelled data, which must be known before it is tokenised to compile the Programs of a
// run.
#pragma once

#include <functional>
#include <span>

#include "data/dataset.h"
#include "format/class_names.h"

namespace temper {

// Reads and parses all rows. Rows that cannot be read are passed over: reading the data will report them. Errors: a
// file that cannot be opened, one class only, too many. `progress`: called with the bytes read of a file, and its path.
Result<ClassNames> FindClasses(Env& env, std::span<const DataInput> inputs,
                               const std::function<void(Bytes, const std::string&)>& progress = nullptr);

}  // namespace temper
