// Texts and numbers as YAML scalars that read back to the same values, in this reader and in those of YAML 1.1.
#pragma once

#include <string>
#include <string_view>

namespace temper {

bool EqualIgnoringCase(std::string_view a, std::string_view b);  // ASCII
// The words for "not set" in YAML and in plain text: null, none, auto, ~.
bool MeansUnset(std::string_view text);

// In quotes only where it needs them.
std::string TextAsYaml(std::string_view text);
// The shortest text that reads back to the same bits.
std::string NumberAsYaml(double v);

}  // namespace temper
