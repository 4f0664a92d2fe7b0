// Checks of a SentencePiece model file ("ModelProto") that the sentencepiece library omits: it walks the normalization
// trie of a file without checking that the trie stays within the file.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace temper {

// Whether a table of replaced characters (precompiled_charsmap) is safe to walk: a u32, the bytes of a trie (a
// Darts-clone double array of u32); the trie; replacements that end in NUL.
bool CharsmapIsSafe(std::string_view map);
// OK if the normalization tables of `model` (a serialized ModelProto) are safe to walk, or there are none.
Status CheckModelProto(std::string_view model, const std::string& where);

// What a ModelProto says of itself; unset fields have protobuf's defaults.
struct ModelProtoFacts {
  bool is_bpe = false;       // else unigram, mostly
  bool normalizes = false;   // characters are replaced before the text is cut
  bool joins_spaces = true;  // several spaces become one
};
ModelProtoFacts FactsOf(std::string_view model);

// `model` with add_dummy_prefix = false. Protobuf merges duplicate messages, so the override is appended.
std::string WithoutDummyPrefix(std::string_view model);

}  // namespace temper
