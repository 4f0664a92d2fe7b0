// SpecialTokens: the special tokens that the small files of a model folder define: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, generation_config.json, config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/tokenizer/added_tokens.h"

namespace temper {

// A role (bos, eos, ...) in tokenizer_config.json or, if that lacks it, special_tokens_map.json.
struct SpecialRole {
  bool stated = false;              // a file has the key, perhaps with null: then there is no such token
  std::optional<AddedToken> token;  // id unset
};

struct SpecialTokens {
  std::string tokenizer_class;  // "LlamaTokenizer"; empty if no file has it. A "Fast" at the end is cut off.
  std::string model_type;       // "opt", of config.json
  SpecialRole bos, eos, unk, pad;
  std::vector<AddedToken> additional;  // additional_special_tokens; ids unset
  std::vector<AddedToken> added;       // added_tokens_decoder and added_tokens.json, by id
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;

  // Token ids of generation_config.json, else config.json. Ids below 0 are left out.
  std::optional<int32_t> bos_id, pad_id;
  std::vector<int32_t> eos_ids;  // of both files

  // Files may be absent; a broken one is an error naming it.
  static Result<SpecialTokens> Read(Env& env, const std::string& folder);
};

}  // namespace temper
