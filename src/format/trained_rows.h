// TrainedRows: some rows of a table of words that are trained in full beside an adapter, where the table itself stays
// as it is: PEFT's trainable_token_indices (peft/tuners/trainable_tokens/layer.py). In a graph they are a value of
// their own, [rows, width], with the name that an adapter's file has for it, and two more that are in no file: the rows
// as the model has them, and which words they are, [vocabulary, rows] of zeros and ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "format/trained_copy.h"
#include "format/weight_source.h"

namespace temper {

struct TrainedRows {
  std::string module;         // of the table: "model.embed_tokens"
  std::string weight;         // the table's value
  std::vector<int64_t> rows;  // of the table, in the order of the value's rows; each once
  int64_t vocabulary = 0, width = 0;
  TrainedCopy::Readers readers = TrainedCopy::Readers::kAll;  // of the table, which read these rows instead
  WeightSource source = {};                                   // of the model's own rows
  std::string tensor = {};                                    // of the model's files that holds the table

  std::string name() const;      // "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
  std::string original() const;  // the model's own rows
  std::string words() const;
  Shape shape() const { return {std::ssize(rows), width}; }
};

inline constexpr char kOriginalRows[] = ".token_adapter.trainable_tokens_original";  // what original() ends with

// Where an adapter's file has the trained rows.
std::vector<StoredWeight> StoredRows(std::span<const TrainedRows> all);
// Where a model's files have the rows that are left as they are, and with `start` also those that training begins with.
std::vector<StoredWeight> ModelRows(std::span<const TrainedRows> all, bool start);

// Fills a part of words(): element (word, i) is 1 where rows[i] is the word, else 0.
void FillWords(std::span<const int64_t> rows, const PartView& part);

}  // namespace temper
