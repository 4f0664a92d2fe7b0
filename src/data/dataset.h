// Dataset: data files as samples, in the order of files and rows for any number of threads. WriteDataset writes them to
// a token file, OpenDataset opens that; LoadDataset does both in memory. SplitForEvaluation: chooses the samples that
// are held out for evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "base/units.h"
#include "data/data_description.h"
#include "data/row_tokenizer.h"
#include "data/token_store.h"
#include "data/token_writer.h"

namespace temper {

struct DatasetOptions {
  TokenizeOptions tokenize;
  bool skip_bad_rows = false;  // skip and count bad rows instead of stopping at the first
  int threads = 1;
  // A text file is cut into pieces of about this size; finding the end of one takes milliseconds. A tokenizer that
  // finds no place to cut gets as much as it takes at once (Tokenizer::max_text).
  Bytes piece = MiB(1);
  // Called now and then with the bytes read so far, all bytes, and the rows read.
  std::function<void(Bytes, Bytes, int64_t)> progress;
  // Called for every sample, in order, with its id: a token file does not keep all of it.
  std::function<void(int64_t, const Sample&)> visit;
};

struct DataInput {
  std::string path;
  int64_t max_rows = std::numeric_limits<int64_t>::max();  // only the first ones are read
  RowReading reading = {};
  RowUse use = RowUse::kAnswers;
};

struct Dataset {
  TokenStore store;
  std::vector<DataFile> files;  // and the format detected for each, to be shown
  DataStatistics statistics;

  // "data.jsonl line 12": the row that gave the sample.
  std::string PlaceOf(int64_t sample) const;
};

// Error: a text file for pairs or classes.
Status CheckUse(const DataInput& input);

// Errors name file and row. Data without any supervised token is an error, too. `threads` threads use `tokenizer` and
// `chat_template` (may be null) at once. Holds some 20 MB and a few times the longest row; of a text file, which is one
// row, some MB per thread where its tokenizer can encode it in pieces (Tokenizer::FindCut), else all of it a few times.
Result<Dataset> LoadDataset(Env& env, const std::vector<DataInput>& inputs, const Tokenizer& tokenizer,
                            const ChatTemplate* chat_template, const DatasetOptions& options);

// The same, into a token file. `key`: all that the samples depend on.
Status WriteDataset(Env& env, const std::vector<DataInput>& inputs, const Tokenizer& tokenizer,
                    const ChatTemplate* chat_template, const DatasetOptions& options, const std::string& key,
                    TokenWriter& out);
// `paths`: of the files now, for messages. Errors: kCorrupt if the file is damaged, kNotFound if it was written with
// another key. `check` and `vocab` as in TokenStore::Open.
Result<Dataset> OpenDataset(std::unique_ptr<MappedFile> file, TokenStore::Check check, int64_t vocab,
                            const std::string& key, const std::vector<std::string>& paths);
std::vector<std::string> InputPaths(const std::vector<DataInput>& inputs);

struct DataSplit {
  std::vector<int32_t> train, evaluation;  // ids of samples, ascending
};

// Draws the samples to evaluate on: `amount` below 1 is a fraction (at least one sample), otherwise a count; 0 is none.
// A pure function of its arguments. Error: nothing would be left to train on.
Result<DataSplit> SplitForEvaluation(int64_t samples, double amount, uint64_t seed);

}  // namespace temper
