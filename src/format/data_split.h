// The splits of a data set (train, test, ...), which the names of its files tell, as the Hub's library datasets reads
// them. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// Of a file of that path: "train_sft" of train_sft-00000-of-00003.parquet and of its like; else the word for a split
// with which the name begins (train.jsonl, test-2.csv), or that is the name of the folder (train/0000.parquet). "" if
// there is none. Words that mean the same give one name: training is train; valid, val and dev are validation; testing,
// eval and evaluation are test. Arrow files of the library itself: of save_to_disk the folder
// (train_sft/data-00000-of-00001.arrow), of its cache what the name ends in (gsm8k-train.arrow,
// ultra-train_sft-00000-of-00002.arrow).
std::string SplitOfFile(std::string_view path);

// Those of `files` that belong to the split of this name, or of a word that means the same.
std::vector<std::string> FilesOfSplit(const std::vector<std::string>& files, std::string_view split);

struct ChosenSplit {
  std::vector<std::string> files;
  std::string split;                // "": all files, which belong to no split, or to one
  std::vector<std::string> others;  // splits that are left out
};

// Those of `files`, which a user named together by `what` ("--data rows"), that belong to the split `wanted`; if that
// is train and none has a split, all. If it is "": all if there are no two splits; else, for training, the split train.
// Errors: there is no such split; none was wanted, and there are several.
Result<ChosenSplit> ChooseSplit(std::vector<std::string> files, const std::string& wanted, bool for_training,
                                const std::string& what);

}  // namespace temper
