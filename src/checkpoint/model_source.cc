#include "checkpoint/model_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_staging.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/manifest.h"
#include "format/lora_config.h"
#include "format/quoted.h"

namespace temper {
namespace {

// "organisation/name", as the Hugging Face Hub calls its repositories.
bool LooksLikeHubId(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == 0 || slash == text.npos || slash + 1 == text.size() || text.find('/', slash + 1) != text.npos)
    return false;
  if (text[0] == '.' || text[0] == '~') return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '/' || c == '-' || c == '_' || c == '.'; });
}

std::string DownloadHint(const std::string& id, const char* option) {
  return fmt::format(
      "If it is a model on the Hugging Face Hub, download it first: `hf download {} --local-dir FOLDER`, "
      "then {} FOLDER",
      id, option);
}

bool HasWeights(Env& env, const std::string& folder) {
  return env.IsFile(JoinPath(folder, "model.safetensors")) ||
         env.IsFile(JoinPath(folder, "model.safetensors.index.json"));
}

Status ExplainMissing(Env& env, const std::string& path, const char* option) {
  if (env.IsFile(path)) {
    return InvalidArgument(
        fmt::format("{} {} is a file; give the folder of a model, an adapter, a run's output or a "
                    "checkpoint",
                    option, path));
  }
  const std::string hint = LooksLikeHubId(path) ? ". " + DownloadHint(path, option) : "";
  return NotFound(fmt::format("{} {}: there is no such folder{}", option, path, hint));
}

class Resolver {
 public:
  Resolver(Env& env, const ModelSourceRequest& request) : env_(env), request_(request) {}

  // Fills `source_` from folder `path`, which the user gave as `option`.
  Status Resolve(const std::string& path, const char* option) {
    if (!env_.IsFolder(path)) return ExplainMissing(env_, path, option);
    if (BaseName(path).ends_with(kStagingSuffix)) {
      return InvalidArgument(
          fmt::format("{} {} is a save that was interrupted; give a finished checkpoint", option, path));
    }
    const bool checkpoint = env_.IsFile(JoinPath(path, kManifestFile));
    if (env_.IsFile(JoinPath(path, kAdapterConfigFile))) return TakeAdapter(path, checkpoint);
    if (env_.IsFile(JoinPath(path, kModelConfigFile)) &&
        (HasWeights(env_, path) || checkpoint || !request_.needs_weights)) {
      return TakeModel(path, checkpoint);
    }
    TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env_, path));
    if (!checkpoints.empty()) {
      const std::string& latest = checkpoints.back().path;
      source_.notices.push_back(
          fmt::format("{} has no finished model or adapter; using its newest checkpoint: {}", path, BaseName(latest)));
      return Resolve(latest, option);
    }
    // A folder with config.json and weights of another kind (pickles) is the model reader's to explain.
    if (env_.IsFile(JoinPath(path, kModelConfigFile))) return TakeModel(path, false);
    return NotFound(
        fmt::format("{} {} is not a model: looked for {} with model.safetensors (a model), {} (an adapter) and "
                    "checkpoint-<step> folders (a run's output), found none",
                    option, path, kModelConfigFile, kAdapterConfigFile));
  }

  Result<ModelSource> Run() {
    TEMPER_RETURN_IF_ERROR(Resolve(request_.model, request_.option));
    if (source_.adapter_folder.empty() && !request_.base.empty()) {
      return InvalidArgument(fmt::format("{} {} is a model itself, not an adapter that could go on top of {}",
                                         request_.option, request_.model, request_.base));
    }
    return std::move(source_);
  }

 private:
  Status TakeModel(const std::string& path, bool checkpoint) {
    source_.model_folder = path;
    if (!checkpoint) {
      // The finished model of a full run lies, in f32, above its checkpoints.
      TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env_, path));
      source_.model_is_checkpoint = !checkpoints.empty();
      return OkStatus();
    }
    TEMPER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(env_, path));
    source_.model_is_checkpoint = true;
    if (source_.checkpoint.empty()) source_.checkpoint = path;
    return OkStatus();
  }

  Status TakeAdapter(const std::string& path, bool checkpoint) {
    if (!source_.adapter_folder.empty()) {
      return Unsupported(
          fmt::format("the base of adapter {} is itself an adapter, {}; merge that one first: temper export "
                      "--model {} --output_dir MERGED, then --base MERGED",
                      source_.adapter_folder, path, path));
    }
    if (checkpoint) {
      TEMPER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(env_, path));
      source_.checkpoint = path;
    }
    source_.adapter_folder = path;
    TEMPER_ASSIGN_OR_RETURN(const LoraConfig config, ReadLoraConfig(env_, JoinPath(path, kAdapterConfigFile)));
    if (!request_.base.empty()) return Resolve(request_.base, "--base");
    return ResolveBase(path, config.base_model);
  }

  Status ResolveBase(const std::string& adapter, const std::string& base) {
    if (base.empty()) {
      return NotFound(fmt::format("{} does not say which model it adapts (base_model_name_or_path); give --base FOLDER",
                                  JoinPath(adapter, kAdapterConfigFile)));
    }
    std::vector<std::string> candidates = {base};
    if (std::filesystem::path(base).is_relative()) {
      candidates.push_back(JoinPath(adapter, base));
      candidates.push_back(JoinPath(FolderOf(adapter), base));
    }
    for (const std::string& candidate : candidates) {
      if (env_.IsFolder(candidate)) return Resolve(candidate, "--base");
    }
    const std::string hint = LooksLikeHubId(base) ? ". " + DownloadHint(base, "give --base") : ". Give --base FOLDER";
    return NotFound(fmt::format("the adapter {} was made for {}, which is not here (looked for {}){}", adapter,
                                Quoted(base), fmt::join(candidates, ", "), hint));
  }

  Env& env_;
  const ModelSourceRequest& request_;
  ModelSource source_;
};

}  // namespace

Result<ModelSource> ResolveModelSource(Env& env, const ModelSourceRequest& request) {
  if (request.model.empty()) return InvalidArgument("--model is missing: give a model folder");
  return Resolver(env, request).Run();
}

}  // namespace temper
