// Rope: the rotary embedding that a config.json describes, computed as in transformers (modeling_rope_utils.py): plain,
// linear, dynamic, YaRN, longrope or Llama 3's, on whole heads or on their first elements; or proportional, which pairs
// elements of whole heads and turns the first pairs.
#pragma once

#include <string>
#include <vector>

#include "format/json.h"
#include "model/forward.h"

namespace temper {

// What a config.json says, for files of models that do not have frequencies themselves (GGUF).
struct RopeDescription {
  enum class Type : uint8_t { kPlain, kLinear, kDynamic, kLlama3, kYarn, kLongrope, kProportional } type = Type::kPlain;
  double theta = 0, factor = 1;
  int64_t original = 0;                           // positions before scaling
  bool truncates = true;                          // of YaRN: its bounds are whole numbers
  double beta_fast = 32, beta_slow = 1;           // of YaRN
  std::vector<double> short_factor, long_factor;  // of longrope, and of Llama 3 (short): what divides each frequency
  friend bool operator==(const RopeDescription&, const RopeDescription&) = default;
};

struct RopeSpec {
  // For each rotated pair of a head's elements, in radians per position.
  std::vector<double> inv_freq;
  // For documents of more than `original` tokens: longrope's second frequencies, or the parameters of dynamic scaling,
  // whose `theta` grows with the document.
  std::vector<double> long_inv_freq;
  double dynamic_factor = 0, theta = 0;
  int64_t original = 0;
  double scale = 1;          // of cosines and sines
  bool interleaved = false;  // pairs are (2 e, 2 e + 1)
  // Queries are also scaled by 1 + beta ln(1 + floor(position / position_original)).
  double position_beta = 0;
  int64_t position_original = 0;
  RopeDescription described;

  // Whether a document within a context of `tokens` tokens may be too long for inv_freq.
  bool HasLongDocuments(int64_t tokens) const { return original > 0 && tokens > original; }
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct RopeDefaults {
  double theta = 10000;
  double partial = 1;                // partial_rotary_factor
  bool may_be_partial = false;       // files may set partial_rotary_factor
  const char* layer_type = nullptr;  // for families whose files may describe one embedding for each type of layer
  bool yarn_is_longrope = false;     // Phi-3's files call longrope yarn
  const char* type = "default";      // rope_type
  // original_max_position_embeddings, which the class has beside the parameters of scaling; 0: it has not, and a file
  // that does not say otherwise means max_position_embeddings.
  int64_t original = 0;
};

// Reads rope_scaling, rope_parameters and the keys beside them. `layer_type`: which embedding to read
// ("full_attention") from files that describe one for each type of layer; nullptr: these files are refused
// (kUnsupported). Unknown types of scaling are kUnsupported, too.
Result<RopeSpec> ReadRope(const Json& config, const char* layer_type, const RopeDefaults& defaults, int64_t head_dim,
                          int64_t max_positions, const std::string& where);

// Reads `key` among the parameters of scaling: how much queries grow with their position (RopeSpec::position_beta).
Status ReadPositionScale(const Json& config, const char* key, const std::string& where, RopeSpec* rope);

// By what latent attention multiplies scores beside 1/sqrt(width), where rope is scaled and has mscale_all_dim
// (transformers, yarn_apply_mscale); else 1.
Result<double> ReadScoreFactor(const Json& config, const std::string& where);

// The table of that embedding for the tokens of the pass. Where documents may be long it goes by the length of each.
// `of_queries`: with the scale that only queries have.
ValueId RopeTableOf(ForwardBuilder& builder, const RopeSpec& rope, bool of_queries, const std::string& name);

}  // namespace temper
