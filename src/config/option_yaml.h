// Options in YAML: reads a run.yaml into an OptionSet, and prints
// an OptionSet as YAML that reads back to the same values.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "config/option_set.h"

namespace temper {

// Sets every option that `text` names. `file` is its path, for messages: "run.yaml line 3: ...". Keys of a section may
// be nested ("lora: {r: 8}") or dotted ("lora.r: 8"). Mistakes do not stop the reading: the error names all of
// them, a line each, and every option without a mistake is set.
Status ReadYamlOptions(std::string_view text, const std::string& file, const OptionSet& options);

enum class PrintedOptions : uint8_t { kAll, kWithNotes };

// Options with their current values, in the table's order, sections nested. Same values, same bytes. `notes`
// (option name -> reason) become comments at the end of their lines, unless they are empty.
std::string PrintYamlOptions(const OptionSet& options, const std::map<std::string, std::string>& notes = {},
                             PrintedOptions printed = PrintedOptions::kAll);

}  // namespace temper
