// What is probably wrong with a text that is not YAML. The parser names a rule of its grammar, and often a line behind
// the mistake.
#pragma once

#include <string>
#include <string_view>

namespace temper {

struct YamlMistake {
  int line = 1;      // as people count; of the mistake, which may stand above the one that the parser names
  std::string what;  // "'output_dir:o2': a key needs ': ' behind it"
};

// `line`: where the parser stopped, from 0; `says`: its message, which is repeated where nothing better is known.
YamlMistake FindYamlMistake(std::string_view text, int line, const std::string& says);

}  // namespace temper
