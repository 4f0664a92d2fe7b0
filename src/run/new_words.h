// Tokens that an export or a run adds to a model: rows of its tables, entries of its tokenizer.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/export_spec.h"
#include "data/tokenizer/added_tokens.h"
#include "run/opened_model.h"

namespace temper {

// Makes `spec` the export of `model` with these tokens (data/tokenizer/new_tokens.h), which get their ids. Free rows of
// tables, as published ones often have at their end, are used first, as transformers does; tables grow where these are
// too few. `where`: of the tokens, for messages. Errors: an adapter; a token that is there; a model whose words are in
// other tables, too.
Status AddNewWords(Env& env, const OpenedModel& model, const std::string& where, std::vector<AddedToken>* tokens,
                   ExportSpec* spec);

// That the tokenizer of `folder` reads each token as its id, alone and within a text.
Status CheckNewWords(Env& env, const std::string& folder, const std::vector<AddedToken>& tokens);

// How to train the rows of these tokens alone: the value of lora.trainable_token_indices.
std::string RowsToTrain(const Model& model, const std::vector<AddedToken>& tokens);
// The modules that have a row for each word, by their own names: "embed_tokens", and "lm_head" where it is not tied.
std::vector<std::string> TablesOfWords(const Model& model);

}  // namespace temper
