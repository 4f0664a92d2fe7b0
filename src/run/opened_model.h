// A model for the commands: finds it and reads its configuration and tokenizer; checks before costly work that its
// weights are complete, and loads them once a Program has memory for them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/adapter.h"
#include "checkpoint/export.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/model_source.h"
#include "checkpoint/row_norms.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "disk/stored_slice.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/teacher.h"
#include "model/trainable_set.h"
#include "run/class_head.h"

namespace temper {

struct ModelChoice {
  std::string model;          // model folder, adapter folder, output folder or checkpoint, or a name in the cache
  std::string base;           // base model of an adapter; empty: as its configuration says
  std::string adapter;        // an adapter to put on top of `model`
  bool needs_weights = true;  // false: config.json is enough
  std::string chat_template;  // a name or a file (data/template/known_templates.h); empty: the model's own
  std::string templates_of;   // a checkpoint whose chat templates count, unless one is chosen; empty: none
  FindsClasses classes = {};  // null: the model keeps the head that it has
  bool by_name = false;       // `model` may also name a known model (model/known_models.h): nothing is read then
};

class OpenedModel {
 public:
  // Reads configurations, the headers of weights if there are any, and the numbers of a tied head that is stored as
  // well.
  static Result<OpenedModel> Open(Env& env, const ModelChoice& choice);

  const Model& model() const { return *model_; }
  // Of config.json and tokenizer; empty for a model that is known by name only.
  const std::string& folder() const { return source_.model_folder; }
  const ModelSource& source() const { return source_; }
  const std::optional<LoraConfig>& adapter() const { return adapter_; }
  const std::optional<ClassHead>& class_head() const { return class_head_; }

  // What the adapter changes; empty without one.
  Result<TrainableSet> AdapterSet() const;

  Result<std::unique_ptr<Tokenizer>> LoadTokenizer() const;
  // nullopt if the model has none. `tokenizer`: of this model, or null; from then on it also stops at the token with
  // which the template ends turns.
  Result<std::optional<ChatTemplate>> LoadChatTemplate(Tokenizer* tokenizer) const;
  // The chat templates of folder(), if it has any.
  Result<std::optional<TemplateSources>> OwnTemplates() const;
  // The chat template that was chosen, or those of the adapter's folder, if they are not the ones of folder().
  const std::optional<TemplateSources>& added_templates() const { return added_templates_; }
  // What the folder of a model with added_templates() has instead of the files of folder(), by name: the templates (of
  // folder() no file below additional_chat_templates), and generation settings that stop at the end of their turns.
  // Empty without added_templates().
  Result<std::map<std::string, std::string>> FilesOfTemplate() const;

  // Opens the files of weights and adapter and checks, from their headers, that Load will find every tensor, that all
  // linear modules and experts are in the format that config.json names, and that the adapter was trained on these
  // weights (a warning where the user chose the base).
  Status OpenWeights();
  // The places of a part of a weight in the files, one after another. Errors: as FindSlices. REQUIRES: OpenWeights was
  // OK.
  Result<std::vector<StoredSlice>> FindStored(const std::string& weight, const PartView& part) const;
  // The weights of the base model. REQUIRES: OpenWeights was OK.
  const ModelWeights& weights() const { return *weights_; }
  // Of the tensors that the model does not compute with, which go into a full run's result as they are. REQUIRES:
  // OpenWeights was OK.
  Bytes BytesOfOthers() const;
  // A digest that differs for another model. REQUIRES: OpenWeights was OK.
  Result<std::string> Digest() const;
  // Fills weights (and masters) and the adapter, if there is one; shows progress if it takes long. Checksums of files
  // that Temper wrote are verified first; `parts` processes of a machine share that work. REQUIRES: OpenWeights was OK.
  Status Load(const BufferLookup& buffer, int part = 0, int parts = 1) const;
  // Fills weights alone, unverified: for what is measured before Load.
  Status LoadBase(const BufferLookup& buffer) const;
  // After Load: what stands beside rows that are trained apart from their table (format/trained_rows.h), and, unless an
  // adapter holds them, how these begin: as the model has them.
  Status LoadRowsBeside(std::span<const TrainedRows> rows, const BufferLookup& buffer) const;
  // After Load: what DoRA needs of the rows of weights (checkpoint/row_norms.h), of `modules` or, for kSum, of the
  // adapter's.
  Status LoadRowNormsOf(std::span<const LoraModule> modules, NormsOf of, bool magnitudes,
                        const BufferLookup& buffer) const;

  // From now on model() learns from `teacher`, whose weights are kept as `base` says; FindStored knows them, too. The
  // other functions are about this model alone.
  void LearnFrom(OpenedModel teacher, BaseFormat base);
  const OpenedModel* teacher() const { return teacher_.get(); }
  Status OpenTeacherWeights();  // as OpenWeights, of the teacher, if there is one
  // As Load, of the teacher, if there is one, to where a Program has it.
  Status LoadTeacher(const BufferLookup& buffer, int part = 0, int parts = 1) const;

  // The export of this model by `temper export`; the caller adds the destination.
  Result<ExportSpec> ExportPlan() const;

 private:
  OpenedModel() = default;
  // That files have in its format what config.json says is.
  Status CheckFormats() const;
  // Of the weights, and the copies of them that adapters have, those that the folder's files have.
  std::vector<StoredWeight> InFiles(std::vector<StoredWeight> weights) const;
  Status FindAddedTemplates(const ModelChoice& choice);
  // Warns where the adapter's tokenizer names another bos_token or eos_token than folder()'s, which is used.
  void CompareTokensOfAdapter() const;
  // That the adapter was trained on `base`.
  Status CheckAdapterBase(const ModelWeights& base) const;
  // Whether the head is the embedding, decided from `config` and the files as in transformers: a tied head is separate
  // if the files hold it beside a table with other numbers; if the config.json of a multimodal model does not say, a
  // head that the files do not hold is tied.
  Result<bool> FilesTieTheHead(const Json& config, const Result<ModelWeights>& files) const;
  // Whether files have the matrices of experts in the format of linear modules, where config.json is silent.
  bool FilesQuantiseExperts(const Result<ModelWeights>& files) const;

  Env* env_ = nullptr;
  ModelSource source_;
  std::optional<ClassHead> class_head_;
  bool base_chosen_ = false;  // the user named the adapter's base, rather than the adapter itself
  std::unique_ptr<Model> model_;
  std::optional<LoraConfig> adapter_;
  std::optional<TemplateSources> added_templates_;
  std::optional<ModelWeights> weights_;           // after OpenWeights
  std::optional<AdapterReader> adapter_weights_;  // after OpenWeights, if there is an adapter
  std::unique_ptr<OpenedModel> teacher_;          // null: none
  std::unique_ptr<Teacher> as_teacher_;           // what model_ knows of it
};

}  // namespace temper
