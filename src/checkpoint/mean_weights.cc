#include "checkpoint/mean_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "format/conversion.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

const std::string& ExportedFolder(const ExportSpec& spec) {
  return spec.source.adapter_folder.empty() ? spec.source.model_folder : spec.source.adapter_folder;
}

// What config.json says of the model that is computed, not of how and by what its numbers were written.
Result<Json> ComputedConfig(Env& env, const ExportSpec& spec) {
  const std::string path = JoinPath(spec.source.model_folder, kModelConfigFile);
  TEMPER_ASSIGN_OR_RETURN(Json config, spec.config ? ParseJson(*spec.config, path) : ReadJsonFile(env, path));
  const auto strip = [](Json& object) {
    for (const char* key : {"dtype", "torch_dtype", "transformers_version", "_name_or_path", "quantization_config"}) {
      object.erase(key);
    }
  };
  strip(config);
  for (auto& [key, value] : config.items()) {
    if (value.is_object()) strip(value);
  }
  return config;
}

Status CheckSameConfig(const Json& first, const Json& other, const std::string& what, const std::string& remedy) {
  if (first == other) return OkStatus();
  std::string differs;
  for (const Json& side : {first, other}) {
    for (const auto& [key, value] : side.items()) {
      const bool same = first.contains(key) && other.contains(key) && first.at(key) == other.at(key);
      if (!same && differs.empty()) differs = key;
    }
  }
  return InvalidArgument(fmt::format("{}: config.json differs in {}: {}", what, Quoted(differs), remedy));
}

Status CheckSameTensors(const MergedWeights& first, const MergedWeights& other, const std::string& what,
                        const std::string& remedy) {
  const auto &ours = first.tensors(), &theirs = other.tensors();
  for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    const bool has = i < theirs.size() && (i >= ours.size() || theirs[i].name <= ours[i].name);
    const bool had = i < ours.size() && (i >= theirs.size() || ours[i].name <= theirs[i].name);
    const std::string& name = had ? ours[i].name : theirs[i].name;
    if (has != had) {
      return InvalidArgument(
          fmt::format("{}: only {} has tensor {}: {}", what, had ? "the first" : "the second", Quoted(name), remedy));
    }
    if (ours[i].type.shape == theirs[i].type.shape) continue;
    return InvalidArgument(fmt::format("{}: tensor {} is {} and {}: {}", what, Quoted(name),
                                       ours[i].type.shape.ToString(), theirs[i].type.shape.ToString(), remedy));
  }
  return OkStatus();
}

}  // namespace

Result<MeanWeights> MeanWeights::Open(Env& env, std::span<const ExportSpec> specs, std::optional<DType> dtype) {
  MeanWeights mean;
  Json config;
  for (const ExportSpec& spec : specs) {
    TEMPER_ASSIGN_OR_RETURN(MergedWeights weights, MergedWeights::Open(env, spec, dtype));
    mean.models_.push_back(std::move(weights));
    if (specs.size() == 1) break;
    TEMPER_ASSIGN_OR_RETURN(Json own, ComputedConfig(env, spec));
    if (mean.models_.size() == 1) {
      config = std::move(own);
      continue;
    }
    const std::string what = fmt::format("{} and {}", ExportedFolder(specs[0]), ExportedFolder(spec));
    constexpr char kRemedy[] = "a mean is of models with the same tensors; export them alone";
    TEMPER_RETURN_IF_ERROR(CheckSameConfig(config, own, what, kRemedy));
    TEMPER_RETURN_IF_ERROR(CheckSameTensors(mean.models_.front(), mean.models_.back(), what, kRemedy));
  }
  return mean;
}

Status MeanWeights::Verify(const TransferCallback& progress) const {
  for (const MergedWeights& model : models_) TEMPER_RETURN_IF_ERROR(model.Verify(progress));
  return OkStatus();
}

Result<MeanWeights::Reader> MeanWeights::OpenReader(const MergedWeights::Tensor& tensor) {
  const size_t at = static_cast<size_t>(&tensor - first().tensors().data());
  TEMPER_CHECK(at < first().tensors().size()) << tensor.name;
  Reader reader;
  for (MergedWeights& model : models_) {
    TEMPER_ASSIGN_OR_RETURN(MergedWeights::Reader own, model.OpenReader(model.tensors()[at]));
    reader.of_models_.push_back(std::move(own));
  }
  return reader;
}

Status MeanWeights::Reader::Read(int64_t first, std::span<double> out, std::span<std::byte> staging) {
  own_.resize(out.size());
  std::fill(out.begin(), out.end(), 0.0);
  for (const MergedWeights::Reader& model : of_models_) {
    TEMPER_RETURN_IF_ERROR(model.Read(first, std::ssize(out) / std::max<int64_t>(1, columns()), own_, staging));
    for (size_t i = 0; i < out.size(); ++i) out[i] += double{own_[i]};
  }
  const auto n = static_cast<double>(of_models_.size());
  for (double& x : out) x /= n;
  return OkStatus();
}

}  // namespace temper
