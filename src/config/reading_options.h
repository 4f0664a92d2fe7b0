// The options that say how rows of data are read where they are not as Temper expects them (format/row_reading.h):
//   --columns prompt=frage,completion=antwort.text     columns: {prompt: frage, completion: antwort.text}
//   --roles user=customer,assistant=agent,assistant=bot  roles: {user: customer, assistant: [agent, bot]}
//   --prompt_separator '\n'                            prompt_separator: "\n"
// and those that say what becomes of them (format/long_rows.h).
#pragma once

#include <string>
#include <vector>

#include "config/option.h"
#include "format/long_rows.h"
#include "format/row_reading.h"

namespace temper {

// Each time adds fields. Errors: a field that rows do not have (format/row_columns.h).
Option ColumnsOption(RowColumns& columns);
// Each time adds names. Errors: an unknown role (format/row_roles.h).
Option RolesOption(RowRoles& roles);
// What stands between the fields of a prompt.
Option SeparatorOption(std::string& separator);
// These three, of all files.
std::vector<Option> ReadingOptions(RowReading& reading);
Option LongRowsOption(LongRows& long_rows);

// As in a file of settings: {prompt: frage}; null if there are none.
std::string AsYaml(const RowColumns& columns);
std::string AsYaml(const RowRoles& roles);

}  // namespace temper
