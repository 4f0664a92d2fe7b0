// NewTokens: tokens that a tokenizer gets in addition to its own, with what the files of a model's folder then say.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

// `given`: a file, or the JSON list itself, which begins with a bracket.
// A token a line, each special and not normalised; or a JSON list whose entries are such texts or objects with the keys
// of an added token in tokenizer.json: content, special, normalized, lstrip, rstrip, single_word. They have no ids.
// Errors name the line or the place in the list: nothing, a token twice, none at all.
Result<std::vector<AddedToken>> ReadNewTokens(Env& env, const std::string& given);

// Gives `tokens` their ids, which follow each other from tokenizer.vocab_size() on, as `tokenizers` does. Errors: a
// token that the tokenizer has. `where`: of the list.
Status NumberNewTokens(const Tokenizer& tokenizer, const std::string& where, std::vector<AddedToken>* tokens);

// The texts of tokenizer.json and tokenizer_config.json with the tokens, by name. `replaced`: texts that stand for
// those of `folder`. Errors: the folder has no tokenizer.json.
Result<std::map<std::string, std::string>> FilesWithTokens(Env& env, const std::string& folder,
                                                           const std::map<std::string, std::string>& replaced,
                                                           const std::vector<AddedToken>& tokens);

}  // namespace temper
