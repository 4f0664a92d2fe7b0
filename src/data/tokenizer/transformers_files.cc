#include "data/tokenizer/transformers_files.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer_json.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr char kTokenizerJson[] = "tokenizer.json", kTokenizerConfig[] = "tokenizer_config.json";
constexpr char kReadAsItIs[] = "PreTrainedTokenizerFast";

Result<OrderedJson> ReadOrdered(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxTokenizerJson));
  TEMPER_ASSIGN_OR_RETURN(OrderedJson json, ParseOrderedJson(text, path));
  if (!json.is_object()) return Corrupt(path + ": should be a JSON object");
  return json;
}

std::string Print(const OrderedJson& json) {
  return DumpJson(json, 2) + "\n";
}

// A post_processor for tokenizer.json that puts these tokens around a text.
OrderedJson TemplateAround(const std::optional<AddedToken>& before, const std::optional<AddedToken>& after) {
  OrderedJson single = OrderedJson::array(), pair = OrderedJson::array(), tokens = OrderedJson::object();
  const auto add_token = [&](const std::optional<AddedToken>& token, int type) {
    if (!token) return;
    const OrderedJson part = {{"SpecialToken", {{"id", token->content}, {"type_id", type}}}};
    if (type == 0) single.push_back(part);
    pair.push_back(part);
    tokens[token->content] = {{"id", token->content},
                              {"ids", OrderedJson::array({token->id})},
                              {"tokens", OrderedJson::array({token->content})}};
  };
  const auto add_text = [&](const char* id, int type) {
    const OrderedJson part = {{"Sequence", {{"id", id}, {"type_id", type}}}};
    if (type == 0) single.push_back(part);
    pair.push_back(part);
  };
  add_token(before, 0);
  add_text("A", 0);
  add_token(after, 0);
  add_token(before, 1);
  add_text("B", 1);
  add_token(after, 1);
  OrderedJson out = OrderedJson::object();
  out["type"] = "TemplateProcessing";
  out["single"] = std::move(single);
  out["pair"] = std::move(pair);
  out["special_tokens"] = std::move(tokens);
  return out;
}

// `own`: the file's post_processor. If the folder's adds other tokens, returns the text with that one.
Result<std::optional<std::string>> WithPostProcessor(const PipelineParts& parts, OrderedJson pipeline,
                                                     const std::string& where) {
  const Json stated(pipeline["post_processor"]);
  TEMPER_ASSIGN_OR_RETURN(const PostProcessor own, PostProcessor::FromJson(stated, where));
  const std::vector<int32_t> text = {-1};
  const std::vector<int32_t> framed = parts.post_processor.Apply(text);
  if (framed == own.Apply(text)) return std::optional<std::string>();
  const auto token = [&](int32_t id) {
    const AddedToken* found = id < 0 ? nullptr : parts.added.Find(id);
    return found ? std::optional(*found) : std::nullopt;
  };
  pipeline["post_processor"] = TemplateAround(token(framed.front()), token(framed.back()));
  return std::optional(Print(pipeline));
}

Result<TransformersFiles> ReplaceLlama(Env& env, const std::string& folder) {
  TransformersFiles out;
  const std::string json = JoinPath(folder, kTokenizerJson), model = JoinPath(folder, "tokenizer.model");
  const std::string config_path = JoinPath(folder, kTokenizerConfig);
  TEMPER_ASSIGN_OR_RETURN(const SpecialTokens special, SpecialTokens::Read(env, folder));
  if (!special.tokenizer_class.empty() && special.tokenizer_class != "LlamaTokenizer") return out;
  const auto model_alone = [&] {
    out.why = fmt::format(
        "{}: transformers 5 encodes some texts differently than SentencePiece. For exports with the same ids, convert "
        "it first with transformers 4: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        model);
    return out;
  };
  if (!env.IsFile(json)) return env.IsFile(model) ? model_alone() : out;
  if (special.tokenizer_class.empty()) return out;
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, json, kMaxTokenizerJson));
  const auto parts = ParseTokenizerJson(text, special, json);
  if (parts.status().code() == StatusCode::kCorrupt && env.IsFile(model)) {
    // LoadTokenizer reads tokenizer.model; transformers would not load the folder at all.
    out.replaced[kTokenizerJson] = std::nullopt;
    return model_alone();
  }
  TEMPER_RETURN_IF_ERROR(parts.status());
  TEMPER_ASSIGN_OR_RETURN(OrderedJson config, ReadOrdered(env, config_path));
  config["tokenizer_class"] = kReadAsItIs;
  if (special.add_bos || special.add_eos) {  // if only one is set, the other's default depends on the class
    const std::vector<int32_t> framed = parts->post_processor.Apply({-1});
    config["add_bos_token"] = framed.front() >= 0;
    config["add_eos_token"] = framed.back() >= 0;
  }
  out.replaced[kTokenizerConfig] = Print(config);
  TEMPER_ASSIGN_OR_RETURN(OrderedJson pipeline, ReadOrdered(env, json));
  TEMPER_ASSIGN_OR_RETURN(const std::optional<Json> steps, StepsOfClass(Json(pipeline), special, json));
  if (steps) {
    for (const auto& [name, step] : steps->items()) pipeline[name] = OrderedJson(step);
    out.replaced[kTokenizerJson] = Print(pipeline);
  }
  TEMPER_ASSIGN_OR_RETURN(std::optional<std::string> rewritten, WithPostProcessor(*parts, std::move(pipeline), json));
  if (rewritten) out.replaced[kTokenizerJson] = std::move(rewritten);
  if (steps) {
    out.why = fmt::format(
        "{} splits special tokens inside a text: training uses the pipeline that transformers 5 builds for {}, and "
        "exports hold it",
        json, special.tokenizer_class);
    return out;
  }
  out.why = fmt::format(
      "{} names {}, for which transformers 5 builds its own pipeline, with other ids: training uses "
      "tokenizer.json's, like transformers 4, and exports name {}, which both read unchanged",
      config_path, special.tokenizer_class, kReadAsItIs);
  return out;
}

}  // namespace

TransformersFiles FilesForTransformers(Env& env, const std::string& folder) {
  auto files = ReplaceLlama(env, folder);
  return files.ok() ? *std::move(files) : TransformersFiles();
}

}  // namespace temper
