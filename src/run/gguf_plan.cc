#include "run/gguf_plan.h"

#include <fmt/format.h>

#include "data/tokenizer/gguf_vocabulary.h"
#include "run/ollama_template.h"

namespace temper {
namespace {

// For people: llama.cpp shows it.
std::string NameOf(const OpenedModel& model) {
  const ModelSource& source = model.source();
  if (!source.adapter_folder.empty()) return BaseName(AbsolutePath(source.adapter_folder));
  if (!source.gguf_file.empty()) return BaseName(source.gguf_file);
  if (source.hub_model) return BaseName(source.hub_model->repository);
  return BaseName(AbsolutePath(model.folder()));
}

Status AddTemplates(const OpenedModel& model, GgufMetadata* metadata) {
  std::optional<TemplateSources> sources = model.added_templates();
  if (!sources) {
    TEMPER_ASSIGN_OR_RETURN(sources, model.OwnTemplates());
  }
  if (!sources) return OkStatus();
  std::vector<std::string> others;
  for (const auto& [name, source] : *sources) {
    const bool usual = name == "default";
    metadata->Set(usual ? "tokenizer.chat_template" : "tokenizer.chat_template." + name, source.text);
    if (!usual) others.push_back(name);
  }
  if (!others.empty()) metadata->Set("tokenizer.chat_templates", others);
  return OkStatus();
}

Result<std::unique_ptr<Tokenizer>> TokenizerWithStops(const OpenedModel& model) {
  TEMPER_ASSIGN_OR_RETURN(auto tokenizer, model.LoadTokenizer());
  TEMPER_RETURN_IF_ERROR(model.LoadChatTemplate(tokenizer.get()).status());
  return tokenizer;
}

}  // namespace

Result<GgufExportSpec> PlanGguf(Env& env, const OpenedModel& model) {
  GgufExportSpec spec;
  TEMPER_ASSIGN_OR_RETURN(spec.model, model.model().Gguf());
  TEMPER_ASSIGN_OR_RETURN(spec.source, model.ExportPlan());
  spec.metadata.Set("general.name", NameOf(model));
  const auto tokenizer = TokenizerWithStops(model);
  if (tokenizer.status().code() == StatusCode::kNotFound) {
    spec.metadata.Set("tokenizer.ggml.model", std::string("none"));
    spec.model.notices.push_back(tokenizer.status().message() + ": the file has no tokenizer");
    return spec;
  }
  TEMPER_RETURN_IF_ERROR(tokenizer.status());
  TEMPER_ASSIGN_OR_RETURN(GgufVocabulary vocabulary,
                          DescribeVocabulary(env, model.folder(), **tokenizer, model.model().facts().vocab));
  spec.metadata.Add(vocabulary.metadata);
  spec.model.notices.insert(spec.model.notices.end(), vocabulary.notices.begin(), vocabulary.notices.end());
  TEMPER_RETURN_IF_ERROR(AddTemplates(model, &spec.metadata));
  return spec;
}

Result<GgufExportSpec> PlanGgufAdapter(const OpenedModel& model) {
  GgufExportSpec spec;
  TEMPER_ASSIGN_OR_RETURN(spec.model, model.model().Gguf());
  TEMPER_ASSIGN_OR_RETURN(spec.source, model.ExportPlan());
  spec.metadata.Set("general.name", NameOf(model));
  const std::string base = model.adapter() ? model.adapter()->base_model : "";
  if (!base.empty()) {
    spec.metadata.Set("general.base_model.count", uint32_t{1});
    spec.metadata.Set("general.base_model.0.name", BaseName(base));
  }
  return spec;
}

Result<std::string> ModelfileOf(const OpenedModel& model, const std::string& file) {
  std::string text = fmt::format("# ollama create NAME -f Modelfile\nFROM ./{}\n", file);
  const auto tokenizer = TokenizerWithStops(model);
  if (tokenizer.status().code() == StatusCode::kNotFound) return text;
  TEMPER_RETURN_IF_ERROR(tokenizer.status());
  TEMPER_ASSIGN_OR_RETURN(const auto chat_template, model.LoadChatTemplate(nullptr));
  if (!chat_template) {
    return text +
           "# The model has no chat template: Ollama passes prompts on as they are.\nTEMPLATE \"{{ .Prompt }}\"\n";
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int32_t> front, (*tokenizer)->Encode("a"));
  const std::optional<int32_t> bos = (*tokenizer)->bos();
  const auto translated = OllamaTemplate(*chat_template, /*adds_bos=*/bos && !front.empty() && front[0] == *bos);
  if (translated) {
    text += fmt::format("TEMPLATE \"\"\"{}\"\"\"\n", *translated);
  } else {
    text +=
        "# The chat template does more than put texts around messages, which is all that could be translated to "
        "Ollama's\n"
        "# language. The GGUF file has it; write a TEMPLATE by hand where Ollama does not know it.\n";
  }
  for (const int32_t stop : (*tokenizer)->stop_ids()) {
    const std::string token = (*tokenizer)->IdToToken(stop);
    if (token.find_first_of("\"\n") == token.npos) text += fmt::format("PARAMETER stop \"{}\"\n", token);
  }
  return text;
}

}  // namespace temper
