// Model: an architecture as its config.json describes it: its forward pass, written for one device of unlimited memory,
// and the weights that it declares there. It knows no mesh, no memory tier, no backend, no LoRA.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/json.h"
#include "graph/graph.h"
#include "model/forward.h"

namespace temper {

struct ModelFacts {
  std::string architecture;  // "LlamaForCausalLM"
  int64_t vocab = 0, max_positions = 0;
  // Of each block, the first one of its kind. Blocks of a kind compute the same on weights of the same shapes.
  std::vector<int> kinds;
  // How many heads each label stands for, which tensor parallelism has to divide. A label may stand here several times,
  // where blocks differ.
  std::vector<Dim> heads;
  double initializer_range = 0.02;
  bool positions_are_learned = false;  // a table: no row may be longer than it
  bool tied = false;                   // the head uses the embedding table
  // Where config.json says so: JSON pointers.
  std::vector<std::string> tied_keys = {"/tie_word_embeddings"};
  // Name endings of tensors that some files hold although they follow from config.json: they are neither read nor
  // missed.
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};
  bool keeps_other_tensors = false;  // of the folder: parts of a multimodal model that are not computed
  // What config.json says about training that a user should know is done, or is not.
  std::vector<std::string> training_notes;
};

// Bounds of what a config.json may say, above every published model and such that no product of sizes overflows.
inline constexpr int64_t kMaxRows = 1 << 24;   // vocabulary, positions
inline constexpr int64_t kMaxWidth = 1 << 20;  // hidden, ffn, embedding
inline constexpr int64_t kMaxHeads = 1 << 12;  // heads, and elements of one
inline constexpr int64_t kMaxBlocks = 1 << 12;

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelFacts& facts() const = 0;
  // A model that has a block like this one's block blocks[i] as its block i, and otherwise is this one.
  virtual std::unique_ptr<Model> WithBlocks(std::span<const int> blocks) const = 0;
  // What the forward pass declares, in the order of first use.
  const std::vector<WeightDeclaration>& weights() const { return weights_; }
  const std::vector<LinearModule>& modules() const { return modules_; }  // the head last
  std::vector<StoredWeight> StoredWeights() const;
  // The forward pass up to the loss per token or the logits, as `spec` asks.
  Graph Forward(const ForwardSpec& spec) const;

 protected:
  // The forward pass of another model, under this one's names.
  static void BuildForwardOf(const Model& other, ForwardBuilder& f) { other.BuildForward(f); }
  static std::vector<std::string> NamesInFilesOf(const Model& other, const std::string& name) {
    return other.NamesInFiles(name);
  }
  // Builds the forward pass once, for its declarations. To be called before a model is given away.
  void Declare();

 private:
  virtual void BuildForward(ForwardBuilder& f) const = 0;
  // As ForwardBuilder::Naming.
  virtual std::string NameInGraph(const std::string& name) const { return name; }
  virtual std::vector<std::string> NamesInFiles(const std::string& name) const { return {name}; }
  ForwardBuilder BuilderOf(Graph* graph, const ForwardSpec& spec) const;

  std::vector<WeightDeclaration> weights_;
  std::vector<LinearModule> modules_;
};

// For the readers of configurations: notes a probability under `key` that is not 0 as not applied.
Status ReadUnusedDropout(const Json& config, const char* key, double fallback, const std::string& where,
                         ModelFacts* facts);

inline bool IsSane(int64_t size, int64_t most) {
  return size > 0 && size <= most;
}

// The probability under `key` of a dropout that is applied in training, with the note that says so.
Result<double> ReadDropout(const Json& config, const char* key, double fallback, const std::string& where,
                           ModelFacts* facts);

// Sum of the elements of all weights.
int64_t NumParameters(const Model& model);

// Marks every weight source as trainable (full fine-tuning).
void TrainAllWeights(Graph* graph);

}  // namespace temper
