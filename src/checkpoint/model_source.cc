#include "checkpoint/model_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_staging.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/manifest.h"
#include "format/gguf/gguf_header.h"
#include "format/lora_config.h"
#include "format/model_weights.h"
#include "format/quoted.h"

namespace temper {
namespace {

// The repository of the Hub that `text` may name, at `revision` if `text` names none. A revision that is no plain name
// names nothing: it may come from a file of others.
std::optional<HubName> HubNameOf(const std::string& text, const std::string& revision = "") {
  auto name = HubName::Parse(text, HubKind::kModel);
  if (!name || !name->revision.empty() || revision.empty()) return name;
  return HubName::Parse(text + "@" + revision, HubKind::kModel);
}

// One that nothing has been fetched of: what may help. Empty where the text is rather a path.
std::string DownloadHint(const std::optional<HubName>& name, const HubCache& cache) {
  if (!name || name->repository.find('/') == std::string::npos) return "";
  return fmt::format(
      ", and the Hugging Face cache ({}) does not have it. If it is a model of the Hub, fetch it with `{}`",
      cache.folder(), name->DownloadCommand());
}

class Resolver {
 public:
  Resolver(Env& env, const ModelSourceRequest& request)
      : env_(env), cache_(HubCache::OfMachine(env)), request_(request) {}

  // Fills `source_` from folder `path`, which the user gave as `option`.
  Status Resolve(const std::string& path, const char* option) {
    if (!env_.IsFolder(path)) return ResolveName(path, option);
    if (BaseName(path).ends_with(kStagingSuffix)) {
      return InvalidArgument(
          fmt::format("{} {} is a save that was interrupted; give a finished checkpoint", option, path));
    }
    const bool checkpoint = env_.IsFile(JoinPath(path, kManifestFile));
    if (env_.IsFile(JoinPath(path, kAdapterConfigFile))) return TakeAdapter(path, checkpoint);
    if (env_.IsFile(JoinPath(path, kModelConfigFile)) &&
        (!WeightsFileIn(env_, path).empty() || checkpoint || !request_.needs_weights)) {
      return TakeModel(path, checkpoint);
    }
    TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env_, path));
    if (!checkpoints.empty()) {
      const std::string& latest = checkpoints.back().path;
      source_.notices.push_back(
          fmt::format("{} has no finished model or adapter; using its newest checkpoint: {}", path, BaseName(latest)));
      return Resolve(latest, option);
    }
    // A folder with config.json and weights of another kind is the model reader's to explain.
    if (env_.IsFile(JoinPath(path, kModelConfigFile))) return TakeModel(path, false);
    return NotFound(
        fmt::format("{} {} is not a model: looked for {} with model.safetensors or pytorch_model.bin (a model), {} (an "
                    "adapter) and "
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
  // Of what is no folder: a name in the Hugging Face cache.
  Status ResolveName(const std::string& text, const char* option) {
    if (env_.IsFile(text) && request_.folder_of_gguf && IsGguf(text)) return TakeGguf(text);
    if (env_.IsFile(text)) {
      return InvalidArgument(fmt::format(
          "{} {} is a file, and no GGUF file; give the folder of a model, an adapter, a run's output or a checkpoint",
          option, text));
    }
    const auto name = HubNameOf(text);
    if (name && cache_.Has(*name)) return TakeCached(*name, fmt::format("{} {}", option, text));
    return NotFound(fmt::format("{} {}: there is no such folder{}", option, text, DownloadHint(name, cache_)));
  }

  bool IsGguf(const std::string& path) const {
    std::array<std::byte, 4> head{};
    const auto file = env_.OpenForRead(path);
    return file.ok() && (*file)->size().v >= std::ssize(head) && (*file)->ReadAt(0, head).ok() && IsGgufMagic(head);
  }

  Status TakeGguf(const std::string& path) {
    TEMPER_ASSIGN_OR_RETURN(source_.model_folder, request_.folder_of_gguf(path));
    source_.gguf_file = path;
    return OkStatus();
  }

  // `what` names the model in errors.
  Status TakeCached(const HubName& name, const std::string& what) {
    const auto snapshot = cache_.Snapshot(name, request_.needs_weights);
    if (!snapshot.ok()) return snapshot.status().WithContext(what);
    TEMPER_RETURN_IF_ERROR(Resolve(*snapshot, what.c_str()));
    if (source_.model_folder == *snapshot) source_.hub_model = name;
    return OkStatus();
  }

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
                      source_.adapter_folder, path, ShellWord(path)));
    }
    if (checkpoint) {
      TEMPER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(env_, path));
      source_.checkpoint = path;
    }
    source_.adapter_folder = path;
    TEMPER_ASSIGN_OR_RETURN(const LoraConfig config, ReadLoraConfig(env_, JoinPath(path, kAdapterConfigFile)));
    if (!request_.base.empty()) return Resolve(request_.base, "--base");
    return ResolveBase(path, config.base_model, config.base_revision);
  }

  Status ResolveBase(const std::string& adapter, const std::string& base, const std::string& revision) {
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
      if (env_.IsFolder(candidate) || (env_.IsFile(candidate) && IsGguf(candidate)))
        return Resolve(candidate, "--base");
    }
    const auto name = HubNameOf(base, revision);
    if (name && cache_.Has(*name)) return TakeCached(*name, fmt::format("the base of {}, {}", adapter, base));
    const std::string hint = DownloadHint(name, cache_);
    return NotFound(fmt::format("the adapter {} was made for {}, which is not here (looked for {}){}", adapter,
                                Quoted(base), fmt::join(candidates, ", "),
                                hint.empty() ? ". Give --base FOLDER" : hint));
  }

  Env& env_;
  const HubCache cache_;
  const ModelSourceRequest& request_;
  ModelSource source_;
};

}  // namespace

Result<ModelSource> ResolveModelSource(Env& env, const ModelSourceRequest& request) {
  if (request.model.empty())
    return InvalidArgument("--model is missing: give a model folder, or the name of a model in the Hugging Face cache");
  return Resolver(env, request).Run();
}

Result<std::string> FindModelPath(Env& env, const std::string& given) {
  if (env.IsFile(given) || env.IsFolder(given)) return given;
  const HubCache cache = HubCache::OfMachine(env);
  const auto name = HubNameOf(given);
  if (name && cache.Has(*name)) {
    auto snapshot = cache.Snapshot(*name, /*needs_weights=*/true);
    if (!snapshot.ok()) return snapshot.status().WithContext(given);
    return snapshot;
  }
  return NotFound(fmt::format("{}: there is no such file or folder{}", given, DownloadHint(name, cache)));
}

}  // namespace temper
