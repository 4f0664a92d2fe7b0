#include "model/nested.h"

namespace temper {
namespace {

constexpr std::string_view kModel = "model.", kHead = "lm_head.weight";

class Nested final : public Model {
 public:
  Nested(std::unique_ptr<Model> text, std::string architecture, NestedNames names)
      : text_(std::move(text)),
        names_(names),
        inside_(names == NestedNames::kTextModel ? "text_model." : "language_model."),
        facts_(text_->facts()) {
    facts_.architecture = std::move(architecture);
    facts_.keeps_other_tensors = true;
    // transformers 5 reads the first, 4 the second.
    facts_.tied_keys = {"/tie_word_embeddings", "/text_config/tie_word_embeddings"};
    Declare();
  }
  const ModelFacts& facts() const override { return facts_; }
  std::unique_ptr<Model> WithBlocks(std::span<const int> blocks) const override {
    return MakeNested(text_->WithBlocks(blocks), facts_.architecture, names_);
  }

 private:
  // Until transformers 4.51 the text model was one with a head. Where names are as in memory, AutoModelForCausalLM
  // makes the text model alone of the same folder.
  std::vector<std::string> OlderPaths(const std::string& module) const override {
    const std::string inner = std::string(kModel).append(inside_);
    if (names_ == NestedNames::kAsInMemory) {
      if (!module.starts_with(inner)) return {};
      return {std::string(kModel).append(module.substr(inner.size()))};
    }
    if (!module.starts_with(inner)) return {std::string(inside_) + module};
    return {std::string(inside_).append(kModel).append(module.substr(inner.size()))};
  }
  void BuildForward(ForwardBuilder& f) const override { BuildForwardOf(*text_, f); }
  Result<GgufModel> Describe() const override {
    TEMPER_ASSIGN_OR_RETURN(GgufModel text, DescriptionOf(*text_));
    text.notices.push_back("the text model alone is written: llama.cpp has the other parts in a file of their own");
    return text;
  }
  std::string NameInGraph(const std::string& name) const override {
    if (!name.starts_with(kModel)) return name;
    return std::string(kModel).append(inside_).append(name.substr(kModel.size()));
  }
  std::vector<std::string> NamesInFiles(const std::string& name) const override {
    std::vector<std::string> names;
    for (const std::string& inner : NamesInFilesOf(*text_, name)) {
      const std::string prefixed = std::string(inside_) + inner;
      if (names_ != NestedNames::kAsInMemory) names.push_back(prefixed);
      if (inner.starts_with(kModel) || inner == kHead) names.push_back(NameInGraph(inner));
      if (names_ == NestedNames::kAsInMemory) names.push_back(prefixed);
    }
    return names;
  }

  const std::unique_ptr<Model> text_;
  const NestedNames names_;
  const std::string_view inside_;  // what follows "model." in memory
  ModelFacts facts_;
};

}  // namespace

std::unique_ptr<Model> MakeNested(std::unique_ptr<Model> text, std::string architecture, NestedNames names) {
  return std::make_unique<Nested>(std::move(text), std::move(architecture), names);
}

}  // namespace temper
