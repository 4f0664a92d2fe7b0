#include "config/foreign_purpose.h"

#include <fmt/core.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "config/foreign_objective.h"
#include "format/quoted.h"

namespace temper {
namespace {

const ForeignSetting* GivenIn(const ForeignFile& file, std::string_view name) {
  for (const ForeignSetting& setting : file.settings) {
    if (setting.name == name && !setting.value.is_null() && setting.value != false) return &setting;
  }
  return nullptr;
}

// The first of these settings, or what stands for it.
std::string Named(const ForeignFile& file, std::initializer_list<std::string_view> names, const char* otherwise) {
  for (const std::string_view name : names) {
    if (const ForeignSetting* const setting = GivenIn(file, name)) return ShellWord(setting->Text());
  }
  return otherwise;
}

struct Purpose {
  std::string_view does;  // of a tool's program, separated by spaces
  const char* what;       // "it merges an adapter into its base"
  const char* command;    // with {0}: the adapter or model, {1}: where the result goes
};
constexpr Purpose kPurposes[] = {
    {"export merge-lora merge_lora merge-sharded-fsdp-weights quantize", "it exports a model",
     "temper export {0} --output_dir {1}"},
    {"chat webchat inference cli_demo", "it is for chats", "temper chat {0}"},
    {"api vllm-serve serve", "it serves a model, which Temper does not", "temper generate {0} --prompts FILE"},
    {"eval evaluate lm-eval", "it evaluates a model", "temper eval {0} --data FILE"},
    {"predict", "it generates answers", "temper generate {0} --prompts FILE"},
    {"preprocess", "it tokenizes data, which temper train does by itself", "temper data preview {0} --data FILE"},
    {"webui", "it opens a page, which has no equivalent", "temper --help"}};

Status RefuseFor(const ForeignFile& content, std::string_view does, const std::string& by, const std::string& file) {
  for (const Purpose& purpose : kPurposes) {
    if (!IsListed(purpose.does, does)) continue;
    const std::string model = Named(
        content, {"adapter_name_or_path", "lora_model_dir", "output_dir", "model_name_or_path", "base_model", "model"},
        "MODEL");
    const std::string command =
        fmt::format(fmt::runtime(purpose.command), model, Named(content, {"export_dir"}, "models/merged"));
    return InvalidArgument(fmt::format("{} starts no training ({}): {}: {}", file, by, purpose.what, command));
  }
  return OkStatus();
}

}  // namespace

Status CheckTrains(const ForeignFile& content, ForeignTool tool, const std::string& file) {
  const ForeignProgram& program = content.program;
  if (!program.does.empty()) {
    TEMPER_RETURN_IF_ERROR(
        RefuseFor(content, program.does, fmt::format("line {}: {}", program.word.line, program.word.text), file));
  }
  if (tool != ForeignTool::kLlamaFactory) return OkStatus();
  if (GivenIn(content, "do_train") != nullptr || GivenIn(content, "dataset") != nullptr) return OkStatus();
  for (const auto& [name, does] : {std::pair("export_dir", "export"),
                                   {"infer_backend", "chat"},
                                   {"task", "eval"},
                                   {"do_predict", "predict"},
                                   {"do_eval", "eval"}}) {
    const ForeignSetting* const setting = GivenIn(content, name);
    if (setting != nullptr) TEMPER_RETURN_IF_ERROR(RefuseFor(content, does, setting->Shown(), file));
  }
  return OkStatus();
}

}  // namespace temper
