// What a run tells its user about its data before it uses them. To stderr.
#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "settings/run_config.h"

namespace temper {

// Warns of markers that are no tokens of the tokenizer: the template was not made for its model.
void DescribeTemplate(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// "data.jsonl: 7473 rows (prompt/completion), ..." and warnings
// about rows that were cut, dropped or skipped. Of several files also their parts of an epoch's tokens.
// `max_seq_len`: tokens of a row; `positions`: of the model.
void DescribeData(const Dataset& dataset, const DataSources& sources, int64_t max_seq_len, int64_t positions);

}  // namespace temper
