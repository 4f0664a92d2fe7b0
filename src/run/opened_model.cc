#include "run/opened_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/weight_checksums.h"
#include "data/template_tokens.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/transformers_files.h"
#include "format/checksum.h"
#include "format/gguf/gguf_view.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "model/families.h"
#include "model/known_models.h"
#include "model/quantisation_config.h"
#include "run/gguf_folder.h"
#include "tensor/format_rule.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

// Completes the error that `model` is not there, if known models have to do with it.
Status WithKnownModels(Status missing, const ModelChoice& choice) {
  if (missing.code() != StatusCode::kNotFound) return missing;
  if (FindKnownModel(choice.model)) {
    return NotFound(missing.message() + ". temper plan knows this name, but not the weights: give the model's folder");
  }
  if (!choice.by_name) return missing;
  const std::string nearest = NearestKnownModel(BaseName(choice.model));  // the Hub's name has its maker in front
  if (!nearest.empty()) return NotFound(fmt::format("{}; did you mean '{}'?", missing.message(), nearest));
  if (choice.model.find('/') != std::string::npos) return missing;
  return NotFound(fmt::format("{}, and no model is known by this name. Known are {}", missing.message(),
                              fmt::join(KnownModelNames(), ", ")));
}

void WarnOfKeys(const std::vector<std::string>& unknown, const std::string& path) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, unknown.size()); ++i) shown.push_back(Quoted(unknown[i]));
  LogWarning(
      fmt::format("{}: not known and ignored, as by PEFT: {}{}. If a newer PEFT wrote them, the adapter may "
                  "compute something else",
                  path, fmt::join(shown, ", "),
                  unknown.size() > kShown ? fmt::format(" and {} more", unknown.size() - kShown) : ""));
}

}  // namespace

Result<OpenedModel> OpenedModel::Open(Env& env, const ModelChoice& choice) {
  OpenedModel opened;
  opened.env_ = &env;
  if (!choice.chat_template.empty()) {
    TEMPER_ASSIGN_OR_RETURN(TemplateSource chosen, FindTemplate(env, choice.chat_template));
    opened.added_templates_ = TemplateSources{{"default", std::move(chosen)}};
  }
  opened.base_chosen_ = !choice.base.empty() || !choice.adapter.empty();
  const bool bare = choice.base.empty() && choice.adapter.empty();
  if (choice.by_name && bare && !env.IsFolder(choice.model)) {
    if (auto config = FindKnownModel(choice.model)) {
      if (choice.classes) {
        TEMPER_ASSIGN_OR_RETURN(ClassNames classes, choice.classes());
        TEMPER_ASSIGN_OR_RETURN(config, WithClassHead(*config, classes, choice.model));
        opened.class_head_ = ClassHead{.classes = std::move(classes), .added = true};
      }
      TEMPER_ASSIGN_OR_RETURN(opened.model_, ModelFromConfig(*config, choice.model));
      return opened;
    }
  }
  const auto folder_of_gguf = [&env](const std::string& path) { return FolderOfGguf(env, path); };
  auto source = ResolveModelSource(env, {.model = choice.model,
                                         .base = choice.base,
                                         .needs_weights = choice.needs_weights,
                                         .folder_of_gguf = folder_of_gguf});
  if (!source.ok()) return WithKnownModels(source.status(), choice);
  opened.source_ = *std::move(source);
  for (const std::string& notice : opened.source_.notices) LogInfo(notice);
  if (!choice.adapter.empty()) {
    if (!opened.source_.adapter_folder.empty()) {
      return InvalidArgument(fmt::format("--model {} is already an adapter: --adapter needs a model", choice.model));
    }
    // A checkpoint or output folder of a LoRA run is an adapter folder once resolved.
    TEMPER_ASSIGN_OR_RETURN(
        const ModelSource adapter,
        ResolveModelSource(env, {.model = choice.adapter, .option = "--adapter", .base = opened.folder()}));
    opened.source_.adapter_folder = adapter.adapter_folder;
  }
  if (!opened.source_.adapter_folder.empty()) {
    const std::string path = JoinPath(opened.source_.adapter_folder, kAdapterConfigFile);
    TEMPER_ASSIGN_OR_RETURN(opened.adapter_, ReadLoraConfig(env, path));
    TEMPER_ASSIGN_OR_RETURN(const auto unknown, UnknownLoraKeys(env, path));
    if (!unknown.empty()) WarnOfKeys(unknown, path);
  }
  const std::string config_path = JoinPath(opened.folder(), kModelConfigFile);
  TEMPER_ASSIGN_OR_RETURN(Json config, ReadPythonJsonFile(env, config_path));
  TEMPER_ASSIGN_OR_RETURN(opened.class_head_,
                          FindClassHead(env, opened.folder(), opened.source_.adapter_folder, choice.classes));
  if (opened.class_head_ && opened.class_head_->added) {
    TEMPER_ASSIGN_OR_RETURN(config, ParsePythonJson(opened.class_head_->config, config_path));
  }
  if (const std::string map = JoinPath(opened.folder(), kGgufMapFile); env.IsFile(map)) {
    TEMPER_ASSIGN_OR_RETURN(const GgufMap read, GgufMap::Read(env, map));
    AddFormats(read.formats, &config);
  }
  TEMPER_ASSIGN_OR_RETURN(opened.model_, ModelFromConfig(config, config_path));
  const auto files = OpenModelWeights(env, opened.folder());
  TEMPER_ASSIGN_OR_RETURN(const bool tied, opened.FilesTieTheHead(config, files));
  const bool otherwise_tied = tied != opened.model_->facts().tied, quantised = opened.FilesQuantiseExperts(files);
  if (otherwise_tied) {
    for (const std::string& key : opened.model_->facts().tied_keys) config[Json::json_pointer(key)] = tied;
  }
  if (quantised) NoteQuantisedExperts(&config);
  if (otherwise_tied || quantised) {
    TEMPER_ASSIGN_OR_RETURN(opened.model_, ModelFromConfig(config, config_path));
  }
  TEMPER_RETURN_IF_ERROR(opened.FindAddedTemplates(choice));
  return opened;
}

Status OpenedModel::FindAddedTemplates(const ModelChoice& choice) {
  std::string called = choice.chat_template, own_is = "the model's own";
  if (!added_templates_ && !choice.templates_of.empty()) {
    TEMPER_ASSIGN_OR_RETURN(added_templates_, ChatTemplate::SourcesIn(*env_, choice.templates_of));
    if (added_templates_) called = added_templates_->at("default").where;
  }
  // As for a user of transformers who loads the tokenizer of the adapter's folder.
  const bool of_adapter = !added_templates_ && !source_.adapter_folder.empty();
  if (of_adapter) {
    auto sources = ChatTemplate::SourcesIn(*env_, source_.adapter_folder);
    if (!sources.ok()) {  // what needs no template goes on
      LogWarning(sources.status().message() + ": the chat template of the adapter's base is used");
      return OkStatus();
    }
    added_templates_ = std::move(*sources);
    if (added_templates_) called = fmt::format("the adapter's ({})", added_templates_->at("default").where);
    own_is = "its base's";
  }
  if (!added_templates_) return OkStatus();
  const auto found = OwnTemplates();
  const auto own = found.ok() ? *found : std::nullopt;  // another one may be chosen because this one cannot be read
  if (own && HaveSameTexts(*own, *added_templates_)) {
    added_templates_.reset();
    return OkStatus();
  }
  LogInfo(fmt::format("template    {}{}", called,
                      own ? fmt::format(", not {} ({})", own_is, own->at("default").where) : ""));
  if (of_adapter) CompareTokensOfAdapter();
  return OkStatus();
}

void OpenedModel::CompareTokensOfAdapter() const {
  const auto of_adapter = ChatTemplate::Load(*env_, source_.adapter_folder);
  const auto used = LoadChatTemplate(nullptr);
  if (!of_adapter.ok() || !used.ok()) return;  // the user of the template says so
  for (const char* name : {"bos_token", "eos_token"}) {
    const std::string theirs = (*of_adapter)->SpecialToken(name), ours = (*used)->SpecialToken(name);
    if (theirs.empty() || theirs == ours) continue;
    LogWarning(fmt::format("{}: the adapter's tokenizer has {} {}, that of its base {}, which is used",
                           source_.adapter_folder, name, Quoted(theirs), Quoted(ours)));
  }
}

bool OpenedModel::FilesQuantiseExperts(const Result<ModelWeights>& files) const {
  const ModelFacts& facts = model_->facts();
  if (!files.ok() || !facts.modules_format || facts.experts_format == facts.modules_format) return false;
  for (const LinearModule& module : model_->modules()) {
    if (module.matrices == 0) continue;
    // The others have to be like it (CheckFormats).
    const ModelWeights::Entry first = files->Find(module.tensors.front());
    return first.quantised != nullptr && first.quantised->format() == facts.modules_format;
  }
  return false;
}

Result<bool> OpenedModel::FilesTieTheHead(const Json& config, const Result<ModelWeights>& files) const {
  const bool tied = model_->facts().tied;
  if (!files.ok()) return tied;  // config.json alone; OpenWeights says what is wrong where they are needed
  const auto find = [&](const std::vector<std::string>& names) {
    return FindTensor(*files, {.name = names.front(), .aliases = {names.begin() + 1, names.end()}, .shape = {}});
  };
  const LinearModule& head = model_->modules().back();
  const ModelWeights::Entry own = find(head.tensors);
  if (!tied) {
    const auto& keys = model_->facts().tied_keys;
    const bool said = std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
      const Json::json_pointer at(key);
      return config.contains(at) && !config[at].is_null();
    });
    return !said && keys.size() > 1 && own.tensor == nullptr && !files->entries().empty();
  }
  for (const WeightDeclaration& w : model_->weights()) {
    if (w.name != head.weights.front() || own.tensor == nullptr) continue;
    const ModelWeights::Entry table = FindTensor(*files, w.source.tensors().front());
    if (table.tensor == nullptr || table.tensor->name == own.tensor->name) return true;
    TEMPER_ASSIGN_OR_RETURN(const bool same, HaveSameElements(table, own));
    if (!same) {
      LogInfo(
          fmt::format("{} ties the head to the embeddings, but the files hold both, and they differ: the head is "
                      "separate",
                      JoinPath(folder(), kModelConfigFile)));
    }
    return same;
  }
  return tied;
}

Result<TrainableSet> OpenedModel::AdapterSet() const {
  if (!adapter_) return TrainableSet();
  return ResolveTrainable(*model_, *adapter_, JoinPath(source_.adapter_folder, kAdapterConfigFile));
}

Result<std::optional<TemplateSources>> OpenedModel::OwnTemplates() const {
  return ChatTemplate::SourcesIn(*env_, folder());
}

Result<std::unique_ptr<Tokenizer>> OpenedModel::LoadTokenizer() const {
  return temper::LoadTokenizer(*env_, folder());
}

Result<std::optional<ChatTemplate>> OpenedModel::LoadChatTemplate(Tokenizer* tokenizer) const {
  TEMPER_ASSIGN_OR_RETURN(auto chat_template, ChatTemplate::Load(*env_, folder(), added_templates_));
  if (chat_template && tokenizer) {
    if (const auto end = TurnEndToken(*chat_template, *tokenizer)) tokenizer->StopAt(*end);
  }
  return chat_template;
}

Result<std::map<std::string, std::string>> OpenedModel::FilesOfTemplate() const {
  std::map<std::string, std::string> files;
  if (!added_templates_) return files;
  files = FilesOfTemplates(*added_templates_);
  TEMPER_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer());
  TEMPER_ASSIGN_OR_RETURN(const auto chat_template, LoadChatTemplate(nullptr));
  const auto end = TurnEndToken(*chat_template, *tokenizer);
  if (!end) return files;
  TEMPER_ASSIGN_OR_RETURN(std::optional<std::string> stopping, GenerationConfigStoppingAt(*env_, folder(), *end));
  if (stopping) files[kGenerationConfigFile] = *std::move(stopping);
  return files;
}

Status OpenedModel::OpenWeights() {
  const std::vector<FileTensor> tensors = FileTensorsOf(InFiles(model_->StoredWeights()));
  TEMPER_ASSIGN_OR_RETURN(weights_, OpenModelWeights(*env_, folder(), tensors));
  for (const std::string& notice : weights_->notices()) LogWarning(notice);
  TEMPER_RETURN_IF_ERROR(CheckTensors(*weights_, tensors));
  TEMPER_RETURN_IF_ERROR(CheckFormats());
  const ModelFacts& facts = model_->facts();
  const auto unused = UnusedTensors(*weights_, tensors, facts.ignored);
  if (facts.keeps_other_tensors) {
    if (!unused.empty()) {
      LogInfo(
          fmt::format("note        the text model of {} is used; its other {} tensors ({}, ...) stay on the disk and "
                      "go into an export as they are",
                      facts.architecture, unused.size(), Quoted(unused.front())));
    }
  } else if (!unused.empty()) {
    LogWarning(fmt::format("{}: {} tensors are not part of {}, the first is {}", folder(), unused.size(),
                           model_->facts().architecture, Quoted(unused.front())));
  }
  if (!adapter_) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const TrainableSet set, AdapterSet());
  TEMPER_ASSIGN_OR_RETURN(adapter_weights_,
                          AdapterReader::Open(*env_, source_.adapter_folder, set.adapters, set.copies, set.rows));
  return CheckAdapterBase(*weights_);
}

// Those that were left out would have to be quantised here, which some formats cannot be.
Status OpenedModel::CheckFormats() const {
  const ModelFacts& facts = model_->facts();
  std::map<std::string, const LinearModule*> modules;  // by the graph's name of a weight
  for (const LinearModule& m : model_->modules()) {
    if (m.is_head || (m.is_parameter && m.matrices == 0) || IsLeft(m, facts.not_converted)) continue;
    for (const std::string& weight : m.weights) modules[weight] = &m;
  }
  for (const WeightDeclaration& w : model_->weights()) {
    const auto module = modules.find(w.name);
    if (module == modules.end()) continue;
    const bool experts = module->second->matrices > 0;
    std::optional<ElementFormat> format = experts ? facts.experts_format : facts.modules_format;
    if (!facts.module_formats.empty()) {
      const auto own = facts.module_formats.find(NameInConfig(*module->second));
      format = own == facts.module_formats.end() ? std::nullopt : std::optional(own->second);
    }
    if (!format || !format->quantised()) continue;
    const std::string_view title = RuleOf(*format).title;
    for (const FileTensor& tensor : w.source.tensors()) {
      const ModelWeights::Entry entry = FindTensor(*weights_, tensor);
      const bool as_said = entry.quantised != nullptr && entry.quantised->format() == *format;
      if (as_said && entry.quantised->transposed() == w.source.transposed()) continue;
      const std::string place = fmt::format("{}: tensor {}", entry.file->path(), Quoted(entry.tensor->name));
      if (as_said) {
        return Unsupported(fmt::format(
            "{} is {}, and this family stores it transposed: use the original weights, with base_dtype: nf4", place,
            title));
      }
      return Unsupported(
          fmt::format("{} is {}, but config.json says that {} are in {}: use the original weights; or remove "
                      "quantization_config from config.json if none are, or name this one's module in its "
                      "modules_to_not_convert",
                      place, entry.tensor->ToString(), experts ? "experts" : "linear modules", title));
    }
  }
  return OkStatus();
}

Status OpenedModel::CheckAdapterBase(const ModelWeights& base) const {
  const std::string path = JoinPath(source_.adapter_folder, kBaseFile);
  if (!env_->IsFile(path)) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(*env_, path));
  const Status same = CheckBase(text, path, base);
  if (same.code() != StatusCode::kInvalidArgument) return same;
  if (!base_chosen_) {
    return InvalidArgument(
        fmt::format("{}: the adapter does not fit them. Give the model that it was trained on with --base FOLDER or "
                    "NAME@REVISION",
                    same.message()));
  }
  LogWarning(same.message());
  return OkStatus();
}

std::vector<StoredWeight> OpenedModel::InFiles(std::vector<StoredWeight> weights) const {
  if (!class_head_ || !class_head_->added) return weights;
  const std::string& head = model_->modules().back().weights.front();
  std::erase_if(weights,
                [&](const StoredWeight& w) { return w.name == head || w.name == std::string(kAdapterPrefix) + head; });
  return weights;
}

Bytes OpenedModel::BytesOfOthers() const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  Bytes sum;
  for (const std::string& name : UnusedTensors(*weights_, FileTensorsOf(model_->StoredWeights()))) {
    sum += weights_->Find(name).tensor->bytes();
  }
  return sum;
}

Result<std::string> OpenedModel::Digest() const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  TEMPER_ASSIGN_OR_RETURN(const std::string config, ReadTextFile(*env_, JoinPath(folder(), kModelConfigFile)));
  TEMPER_ASSIGN_OR_RETURN(const std::string weights, weights_->Digest());
  return ChecksumHex(std::as_bytes(std::span(config))) + weights;
}

Result<std::vector<StoredSlice>> OpenedModel::FindStored(const std::string& weight, const PartView& part) const {
  if (const std::string in_teacher = NameInTeacher(weight); teacher_ != nullptr && !in_teacher.empty()) {
    return teacher_->FindStored(in_teacher, part);
  }
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  for (const WeightDeclaration& w : model_->weights()) {
    if (w.name != weight) continue;
    if (w.source.transposed()) {
      return Unsupported(fmt::format("{}: the model's files have {} transposed", folder(), weight));
    }
    std::vector<StoredSlice> slices;
    for (const WeightSource::FilePart& of_tensor : w.source.FileParts(part)) {
      TEMPER_ASSIGN_OR_RETURN(auto some, FindSlices(FindTensor(*weights_, *of_tensor.tensor), of_tensor.part));
      slices.insert(slices.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
    }
    for (const StoredSlice& slice : slices) {
      if (slices.size() == 1 || Bytes{slice.elements * SizeOf(slice.stored)} >= kShortestRun) continue;
      return Unsupported(fmt::format("{}: {} lies in the files in short pieces", folder(), weight));
    }
    return slices;
  }
  if (weight.starts_with(kAdapterPrefix)) {
    return Unsupported(fmt::format("{}: {} is the adapter's own", source_.adapter_folder, weight));
  }
  return NotFound(fmt::format("{}: the model has no weight {}", folder(), Quoted(weight)));
}

Status OpenedModel::Load(const BufferLookup& buffer, int part, int parts) const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  TransferProgress verifying("verify");
  TEMPER_RETURN_IF_ERROR(VerifyWeights(*env_, folder(), verifying.Callback(), part, parts));
  if (adapter_weights_) {
    TEMPER_RETURN_IF_ERROR(VerifyWeights(*env_, source_.adapter_folder, /*progress=*/nullptr, part, parts));
  }
  TransferProgress progress("load");
  // Copies begin as the model has them, unless the adapter holds them.
  const std::vector<StoredWeight> of_model =
      InFiles(adapter_weights_ ? model_->StoredWeights() : StoredWeightsAndCopies(*model_));
  TEMPER_RETURN_IF_ERROR(LoadWeights(*weights_, of_model, buffer, progress.Callback()));
  return adapter_weights_ ? adapter_weights_->Load(buffer) : OkStatus();
}

Status OpenedModel::LoadBase(const BufferLookup& buffer) const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  TransferProgress progress("measure");
  return LoadWeights(*weights_, InFiles(model_->StoredWeights()), buffer, progress.Callback());
}

void OpenedModel::LearnFrom(OpenedModel teacher, BaseFormat base) {
  teacher_ = std::make_unique<OpenedModel>(std::move(teacher));
  as_teacher_ = std::make_unique<Teacher>(Teacher{.model = &teacher_->model(), .base = std::move(base)});
  model_->LearnFrom(as_teacher_.get());
}

Status OpenedModel::OpenTeacherWeights() {
  return teacher_ == nullptr ? OkStatus() : teacher_->OpenWeights();
}

Status OpenedModel::LoadTeacher(const BufferLookup& buffer, int part, int parts) const {
  if (teacher_ == nullptr) return OkStatus();
  return teacher_->Load([&](const std::string& name) { return buffer(TeacherName(name)); }, part, parts);
}

Status OpenedModel::LoadRowsBeside(std::span<const TrainedRows> rows, const BufferLookup& buffer) const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  TEMPER_RETURN_IF_ERROR(LoadWeights(*weights_, ModelRows(rows, /*start=*/!adapter_weights_), buffer));
  HostWindow window;
  for (const TrainedRows& some : rows) {
    const DevicePart words = buffer(some.words());
    if (!words.exists()) continue;
    TEMPER_RETURN_IF_ERROR(window.Fill(words, [&](const PartView& piece) {
      FillWords(some.rows, piece);
      return OkStatus();
    }));
  }
  return OkStatus();
}

Status OpenedModel::LoadRowNormsOf(std::span<const LoraModule> modules, NormsOf of, bool magnitudes,
                                   const BufferLookup& buffer) const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  return LoadRowNorms(*weights_, model_->StoredWeights(), modules, of, adapter_weights_ ? &*adapter_weights_ : nullptr,
                      magnitudes, buffer);
}

Result<ExportSpec> OpenedModel::ExportPlan() const {
  const LinearModule& head = model_->modules().back();
  std::string head_tensor;
  for (const StoredWeight& w : model_->StoredWeights()) {
    if (w.name == head.weights.front()) head_tensor = w.source.tensors().front().name;
  }
  ExportSpec spec{.source = source_,
                  .tensors = FileTensorsOf(model_->StoredWeights()),
                  .ignored = model_->facts().ignored,
                  .head = head.path,
                  .head_tensor = head_tensor,
                  .tied_keys = model_->facts().tied_keys,
                  .keeps_others = model_->facts().keeps_other_tensors};
  if (class_head_ && class_head_->added) {
    spec.config = class_head_->config;
    spec.adds_head = true;
  }
  TEMPER_ASSIGN_OR_RETURN(TrainableSet set, AdapterSet());
  spec.modules = std::move(set.adapters);
  spec.copies = std::move(set.copies);
  spec.rows = std::move(set.rows);
  for (const LinearModule& module : model_->modules()) {
    spec.tensors_of[module.path] = module.tensors;
    for (const std::string& tensor : module.tensors) spec.modules_of[tensor] = NameInConfig(module);
  }
  spec.replaced = FilesForTransformers(*env_, folder()).replaced;
  TEMPER_ASSIGN_OR_RETURN(const auto of_template, FilesOfTemplate());
  spec.replaced.insert(of_template.begin(), of_template.end());
  if (added_templates_) {
    TEMPER_ASSIGN_OR_RETURN(const auto companions, CompanionFilesIn(*env_, folder()));
    for (const std::string& name : companions) {
      if (IsInCompanionFolder(name)) spec.replaced.emplace(name, std::nullopt);
    }
  }
  if (adapter_) {
    TEMPER_ASSIGN_OR_RETURN(const ModelWeights base, OpenModelWeights(*env_, folder(), spec.tensors));
    TEMPER_RETURN_IF_ERROR(CheckAdapterBase(base));
  }
  return spec;
}

}  // namespace temper
