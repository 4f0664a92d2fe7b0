// Model: an architecture with the sizes of its config.json: the forward pass, written for one device of unlimited
// memory, and the weights that the pass declares. It knows nothing of meshes, memory tiers, backends or LoRA.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/gguf/gguf_tensor.h"
#include "format/json.h"
#include "graph/graph.h"
#include "model/forward.h"

namespace temper {

struct ModelFacts {
  std::string architecture;  // "LlamaForCausalLM"
  int64_t vocab = 0, max_positions = 0;
  // Above 0: the head has a row for each of so many classes in place of words, and judges sequences.
  int64_t classes = 0;
  // For each block, the index of the first block of its kind. Blocks of
  // one kind compute the same function on weights of the same shapes.
  std::vector<int> kinds;
  // The number of heads of each label (kNone: groups of recurrent heads);
  // tensor parallelism must divide it. A label appears several times if blocks differ.
  std::vector<Dim> heads;
  double initializer_range = 0.02;
  bool positions_are_learned = false;  // in a table; a row may not be longer than it
  bool tied = false;                   // the head uses the embedding table
  // JSON pointers to the keys of config.json that say so.
  std::vector<std::string> tied_keys = {"/tie_word_embeddings"};
  // Name endings of tensors that some files hold although they follow from config.json. They are neither read nor
  // reported.
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};  // those that end in a dot may lie within names
  bool keeps_other_tensors = false;  // exports keep tensors that are not the model's: parts of a multimodal model
  int64_t experts = 0;               // of each block that has some
  bool experts_in_all_blocks = false;
  bool balanced_by_bias = false;    // files have what balances experts; no loss does
  double router_aux_loss_coef = 0;  // of the loss that balances them, where config.json asks for it
  // What quantization_config says of linear modules in files, the head aside: a quantised format; of experts a
  // quantised format or, where it leaves them, that of numbers.
  std::optional<ElementFormat> modules_format, experts_format;
  // By module (NameInConfig, quantisation_config.h), where files have them in several formats; others have none.
  // modules_format is then the one that most have, and experts_format says nothing.
  std::map<std::string, ElementFormat> module_formats = {};
  // Files are quantised in a way that memory does not keep: their weights are read as the numbers that they stand for.
  bool dequantised_as_read = false;
  std::vector<std::string> not_converted = {};  // modules that neither holds for (IsLeft, quantisation_config.h)
  // Notes for the user: settings of config.json that affect training, and whether they are applied.
  std::vector<std::string> training_notes;
};

// Bounds of sizes in a config.json: above every published model, low enough that no product of sizes overflows.
inline constexpr int64_t kMaxRows = 1 << 24;   // vocabulary, positions
inline constexpr int64_t kMaxWidth = 1 << 20;  // hidden, ffn, embedding
inline constexpr int64_t kMaxHeads = 1 << 12;  // heads, and elements of one
inline constexpr int64_t kMaxExperts = 1 << 12;
inline constexpr int64_t kMaxBlocks = 1 << 12;

struct Teacher;  // model/teacher.h

class Model {
 public:
  virtual ~Model() = default;

  // The model that this one learns from, if it does: runs of it have the teacher's pass in their graphs. Neither its
  // own forward pass nor a copy of it knows of the teacher. REQUIRES: the teacher outlives this.
  const Teacher* teacher() const { return teacher_; }
  void LearnFrom(const Teacher* teacher) { teacher_ = teacher; }

  virtual const ModelFacts& facts() const = 0;
  // A copy of this model whose block i is this model's block blocks[i].
  virtual std::unique_ptr<Model> WithBlocks(std::span<const int> blocks) const = 0;
  // The same body under a head of classes, as the class `architecture` of transformers has it; null: this family has
  // none.
  virtual std::unique_ptr<Model> WithClasses(std::string /*architecture*/, int64_t /*classes*/) const {
    return nullptr;
  }
  // The weights that the forward pass declares, in the order of first use.
  const std::vector<WeightDeclaration>& weights() const { return weights_; }
  const std::vector<LinearModule>& modules() const { return modules_; }  // the head last
  std::vector<StoredWeight> StoredWeights() const;
  // The forward pass up to the loss per token or the logits, according to `spec`.
  Graph Forward(const ForwardSpec& spec) const;
  // This model as llama.cpp has it. kUnsupported where it has not, with what is missing.
  Result<GgufModel> Gguf() const;

 protected:
  // For a model that wraps another one: the other's forward pass, and its names in files.
  static void BuildForwardOf(const Model& other, ForwardBuilder& f) { other.BuildForward(f); }
  static std::vector<std::string> NamesInFilesOf(const Model& other, const std::string& name) {
    return other.NamesInFiles(name);
  }
  static Result<GgufModel> DescriptionOf(const Model& other) { return other.Describe(); }
  // Builds the forward pass once, to collect its declarations. Constructors of models must call it.
  void Declare();

 private:
  virtual void BuildForward(ForwardBuilder& f) const = 0;
  // As Gguf, but the parts of tensors are names of weights as BuildForward calls them, and nothing else.
  virtual Result<GgufModel> Describe() const = 0;
  // As ForwardBuilder::Naming.
  virtual std::string NameInGraph(const std::string& name) const { return name; }
  virtual std::vector<std::string> NamesInFiles(const std::string& name) const { return {name}; }
  // What earlier versions of the class in transformers call the module of that path.
  virtual std::vector<std::string> OlderPaths(const std::string& /*module*/) const { return {}; }
  ForwardBuilder BuilderOf(Graph* graph, const ForwardSpec& spec) const;

  std::vector<WeightDeclaration> weights_;
  std::vector<LinearModule> modules_;
  const Teacher* teacher_ = nullptr;
};

// For the readers of configurations: if the probability under `key` is not 0, adds a note that it is not applied.
Status ReadUnusedDropout(const Json& config, const char* key, double fallback, const std::string& where,
                         ModelFacts* facts);

inline bool IsSane(int64_t size, int64_t most) {
  return size > 0 && size <= most;
}

// The probability under `key` of a dropout that training applies; adds a note that says so.
Result<double> ReadDropout(const Json& config, const char* key, double fallback, const std::string& where,
                           ModelFacts* facts);

// The number of elements of all weights that a method may train.
int64_t NumParameters(const Model& model);
// Those that a token passes: of experts the active ones.
int64_t NumActiveParameters(const Model& model);
// "1235.81 M parameters", "30532.12 M parameters, 3350.00 M active".
std::string ParametersText(int64_t parameters, int64_t active);

// Marks every weight source as trainable (full fine-tuning), but for the factors of scale_by and
// the biases by which experts are chosen, which no method trains.
void TrainAllWeights(Graph* graph);

}  // namespace temper
