#include "cli/output_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"

namespace temper {
namespace {

// What runs write into their output folder, besides checkpoint-<step> folders.
constexpr const char* kRunFiles[] = {"run.yaml",
                                     "metrics.jsonl",
                                     "trace.json",
                                     "runs",
                                     "adapter_model.safetensors",
                                     "adapter_config.json",
                                     "model.safetensors",
                                     "model.safetensors.index.json"};

// The result of an earlier end of this run would be taken for that of the run going on. What makes the folder an
// adapter or a model goes first, so that no half is ever seen. A folder that the run starts from is never touched.
Status RemoveStaleResult(Env& env, const RunConfig& config) {
  const std::string& out = config.output.output_dir;
  const bool lora = config.model.method == TrainMethod::kLora;
  for (const std::string& source : {config.model.model, config.model.adapter}) {
    std::error_code missing;
    if (!source.empty() && std::filesystem::equivalent(source, out, missing)) return OkStatus();
  }
  const std::vector<const char*> files =
      lora ? std::vector<const char*>{"adapter_config.json", "adapter_model.safetensors"}
           : std::vector<const char*>{"config.json", "model.safetensors"};
  for (const char* name : files) {
    const std::string path = JoinPath(out, name);
    if (env.IsFile(path)) TEMPER_RETURN_IF_ERROR(env.RemoveFile(path));
  }
  return OkStatus();
}

bool IsRunFile(const std::string& name) {
  return name.starts_with("checkpoint-") ||
         std::find(std::begin(kRunFiles), std::end(kRunFiles), name) != std::end(kRunFiles);
}

}  // namespace

Result<std::optional<std::string>> ClaimOutputFolder(Env& env, const RunConfig& config) {
  const RunConfig::Output& output = config.output;
  const std::string& out = output.output_dir;
  if (output.resume) {
    // Finishes what an interrupted save left behind, before anything is looked for.
    TEMPER_RETURN_IF_ERROR(PrepareOutputFolder(env, out, Bytes{}));
    TEMPER_RETURN_IF_ERROR(RemoveStaleResult(env, config));
    if (!output.resume->empty()) return std::optional(*output.resume);
    TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env, out));
    if (!checkpoints.empty()) return std::optional(checkpoints.back().path);
    LogInfo(fmt::format("resume      {} has no checkpoint yet: starting from the beginning", out));
    return std::optional<std::string>();
  }
  if (!env.IsFolder(out)) return std::optional<std::string>();
  TEMPER_ASSIGN_OR_RETURN(const auto names, env.List(out));
  if (std::none_of(names.begin(), names.end(), IsRunFile)) return std::optional<std::string>();
  if (!output.overwrite) {
    return InvalidArgument(
        fmt::format("{} holds an earlier run: go on with --resume, replace it with --overwrite, or "
                    "choose another --output_dir",
                    out));
  }
  for (const std::string& name : names) {
    if (IsRunFile(name)) TEMPER_RETURN_IF_ERROR(env.RemoveTree(JoinPath(out, name)));
  }
  return std::optional<std::string>();
}

}  // namespace temper
