// GgufParts: the tensors of a family's parts under llama.cpp's names, with what its converter makes of them.
#pragma once

#include <string>
#include <vector>

#include "format/gguf/gguf_tensor.h"
#include "model/decoder_spec.h"

namespace temper {

// Collects them in `out`, whose parts name weights as the forward pass does. Both must outlive it.
class GgufParts {
 public:
  GgufParts(const DecoderSpec& spec, std::vector<GgufTensor>* out) : s_(spec), a_(spec.gguf), out_(out) {}

  GgufTensor& Add(const std::string& name, std::vector<std::string> weights);
  void AddNorm(const std::string& name, const NormSpec& norm, const std::string& module);
  // `blk`: "blk.0.". `in`: the block's modules, "model.layers.0.".
  void AddMixer(const Mixer& mixer, const std::string& blk, const std::string& in);
  void AddFeedForward(const FeedForward& feed_forward, const std::string& blk, const std::string& in);

 private:
  struct LinearParts {
    bool bias = false;
    // Of a fused projection; empty: the module is no such.
    std::vector<std::string> segments = {};
    RowOrder order = {};
    std::vector<GgufRun> rows = {};
    double scale = 1, bias_scale = 1;
  };
  void AddLinear(const std::string& name, const std::string& module, const LinearParts& parts);
  void AddAttention(const AttentionSpec& a, const std::string& blk, const std::string& in, double in_scale = 1,
                    double out_scale = 1);
  void AddLatent(const LatentAttentionSpec& l, const std::string& blk, const std::string& in);
  void AddShortConv(const ShortConvSpec& c, const std::string& blk, const std::string& in);
  void AddDelta(const GatedDeltaSpec& d, const std::string& blk, const std::string& in);
  void AddMamba(const Mamba2Spec& m, double out_scale, const std::string& blk, const std::string& in);
  void AddMlp(const MlpSpec& m, const std::string& blk, const std::string& suffix, const std::string& in);
  void AddExperts(const ExpertsSpec& e, const std::string& blk, const std::string& in);

  const DecoderSpec& s_;
  const GgufArchitecture& a_;
  std::vector<GgufTensor>* out_;
};

}  // namespace temper
