// Decoder: the decoder-only transformer of all families, as data: embeddings, blocks, a head. A block mixes tokens
// (attention), then feeds each forward (an MLP, or experts), both in a frame of norms and residual sums; blocks of a
// model may differ in everything. The file of a family reads its config.json into a DecoderSpec.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/decoder_spec.h"

namespace temper {

// Names of config.json's keys for sizes and numbers.
struct DecoderKeys {
  const char *hidden = "hidden_size", *ffn = "intermediate_size", *blocks = "num_hidden_layers";
  const char *heads = "num_attention_heads", *max_positions = "max_position_embeddings";
  const char *norm_eps = "rms_norm_eps", *activation = "hidden_act", *initializer_range = "initializer_range";
  const char* attention_dropout = "attention_dropout";
};

// Values of keys that a config.json omits: the defaults of the family's class in transformers.
struct DecoderDefaults {
  DecoderKeys keys = {};
  int64_t vocab = 0, hidden = 0;
  int64_t ffn = 0;  // 0: 4 * hidden
  int64_t blocks = 0, heads = 0, max_positions = 0;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double norm_eps = 1e-6, attention_dropout = 0, initializer_range = 0.02;
  const char* activation = "silu";
  bool gated = true;  // no key: a fact of the class
  bool tied = false;
  bool plain_heads = false;  // the class has neither num_key_value_heads nor head_dim
  bool rotary = true;
  RopeDefaults rope = {};
};

// Reads what all families share: sizes (checked against bounds), equal blocks of attention and MLP, norms, activation,
// the rotary embedding (of layers with full attention), the tied head.
Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where);

// Whether the key is there and null, which some classes read otherwise than a missing one.
bool IsNull(const Json& config, const char* key);

// The file of a class that calls keys otherwise than most, and takes both (transformers' attribute_map): pairs of the
// usual name and its own. Those of the result are its own.
Json WithOwnKeys(const Json& file, std::initializer_list<std::pair<const char*, const char*>> names);

// For classes that cut heads by the sizes and use head_dim elsewhere: refuses a file whose head_dim is another.
Status ExpectPlainHeadDim(const Json& config, const DecoderSpec& spec, const std::string& where);

// `sliding_window`, or `fallback` if the file lacks the key; 0 (null in the file): none.
Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where);
// Gives `window` to the attention of blocks with "sliding_attention" in `layer_types`. Without that list, to the blocks
// for which `slides` returns true.
Status SetWindows(const Json& config, int64_t window, const std::function<bool(int64_t block)>& slides,
                  const std::string& where, DecoderSpec* spec);

// Which layers `layer_types` lists as "full_attention"; the others must be `other`. Empty: the file has no such list.
Result<std::vector<bool>> ReadAttentionLayers(const Json& config, const char* other, size_t layers,
                                              const std::string& where);

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec);

}  // namespace temper
