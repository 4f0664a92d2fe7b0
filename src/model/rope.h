// Rope: the rotary embedding that a config.json asks for, as transformers computes it (modeling_rope_utils.py): plain,
// linear, dynamic, YaRN, longrope, Llama 3's, of whole heads or of their first part.
#pragma once

#include <string>
#include <vector>

#include "format/json.h"
#include "graph/builder.h"

namespace temper {

struct RopeSpec {
  // Of each pair of a head's elements that turns, in radians per position.
  std::vector<double> inv_freq;
  // In the place of those for tokens that are seen in more than `original` (rows in training, the context in decoding):
  // longrope's, or what makes dynamic ones of them, of which `theta` grows with the tokens. transformers goes by the
  // longest document of a batch instead, which is not known when a Program is compiled.
  std::vector<double> long_inv_freq;
  double dynamic_factor = 0, theta = 0;
  int64_t original = 0;
  double scale = 1;          // of cosines and sines
  bool interleaved = false;  // pairs are (2 e, 2 e + 1)
  // Of queries, too: 1 + beta ln(1 + floor(position / position_original)).
  double position_beta = 0;
  int64_t position_original = 0;

  // For tokens that are seen among `tokens`.
  std::vector<double> FrequenciesFor(int64_t tokens) const;
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct RopeDefaults {
  double theta = 10000;
  double partial = 1;                // partial_rotary_factor
  bool may_be_partial = false;       // files may give another than 1
  const char* layer_type = nullptr;  // of families whose files may describe one embedding for each type of layer
  bool yarn_is_longrope = false;     // Phi-3's files name it so
  int64_t original = 0;              // original_max_position_embeddings; 0: max_position_embeddings
};

// What config.json says under rope_scaling, rope_parameters and beside them. `layer_type`: the one of several
// ("full_attention") in files that describe them one by one; nullptr: such files are refused. kUnsupported: other types
// of scaling, too.
Result<RopeSpec> ReadRope(const Json& config, const char* layer_type, const RopeDefaults& defaults, int64_t head_dim,
                          int64_t max_positions, const std::string& where);

// Lets queries grow with the position, by what stands under `key` beside the parameters of scaling.
Status ReadPositionScale(const Json& config, const char* key, const std::string& where, RopeSpec* rope);

// The table of that embedding: for `tokens` as FrequenciesFor. `of_queries`: with what applies to them alone.
ValueId RopeTableOf(GraphBuilder& builder, ValueId position_T, const RopeSpec& rope, int64_t tokens, bool of_queries,
                    const std::string& name);

}  // namespace temper
