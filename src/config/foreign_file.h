// ForeignFile: a configuration of another tool as settings, in the file's order. Two kinds of files: YAML, and a shell
// script whose command has the settings as options ("accelerate launch sft.py --learning_rate 1e-4").
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace temper {

struct ForeignSetting {
  std::string name;
  OrderedJson value;
  int line = 0;  // from 1

  // A scalar as it would be typed, to look it up and to show it; a list or a mapping as JSON.
  std::string Text() const;
};

// `file` is its path, for messages. Null values, which leave a setting open, are left out.
Result<std::vector<ForeignSetting>> ReadForeignFile(std::string_view text, const std::string& file);

}  // namespace temper
