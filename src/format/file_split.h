// FileSplit: which part of a data set a file holds, by its name, as the datasets library of Hugging Face reads it:
// "train-00000-of-00002.jsonl", "validation.csv", "my_test.json".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

enum class FileSplit : uint8_t { kOther, kTrain, kValidation, kTest };

// By the words of the file's name.
FileSplit SplitOf(std::string_view path);
// The split that a setting names: "train", "test".
FileSplit SplitNamed(std::string_view name);
// None of kOther, which is no split.
std::vector<std::string> FilesOfSplit(const std::vector<std::string>& files, FileSplit split);

}  // namespace temper
