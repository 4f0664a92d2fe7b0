#include "run/residual_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/progress_text.h"
#include "checkpoint/adapter.h"
#include "checkpoint/export.h"
#include "checkpoint/load_weights.h"
#include "format/json.h"
#include "model/trainable_set.h"
#include "run/base_beside.h"
#include "run/leading_factors.h"
#include "run/opened_model.h"
#include "tensor/format_rule.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr char kFirstFolder[] = "first_adapter", kTakenFolder[] = "taken_adapter";

Status CheckModule(const LoraModule& m, const std::string& init) {
  const char* why = m.matrices > 0                ? "it is a stack of matrices"
                    : m.groups > 1                ? "its rows are dealt in groups"
                    : m.has_magnitudes            ? "DoRA's magnitudes are of the whole weight"
                    : m.is_head                   ? "the output head may be tied to the embeddings"
                    : m.r > std::min(m.in, m.out) ? "its rank is above the dims of the weight"
                                                  : nullptr;
  if (why == nullptr) return OkStatus();
  return Unsupported(
      fmt::format("init_lora_weights: {}: {} cannot begin so: {}. Leave it out of lora.target_modules, or remove "
                  "init_lora_weights",
                  init, m.path, why));
}

// The first A and B of modules, in f32, as NamedViews of an adapter's files.
class FirstAdapter {
 public:
  // Reads a module's weight from the files, [out, in].
  Status Add(const LoraModule& m, const OpenedModel& model, const std::map<std::string, StoredWeight>& stored,
             bool by_rows, int threads) {
    w_.resize(static_cast<size_t>(m.out * m.in));
    int64_t first = 0;
    for (const LoraModule::Part& part : m.parts) {
      const StoredWeight& weight = stored.at(part.weight);
      const View rows{reinterpret_cast<std::byte*>(w_.data() + first * m.in), {DType::kF32, {part.rows, m.in}}};
      TEMPER_RETURN_IF_ERROR(LoadWeights(model.weights(), {&weight, 1}, [&](const std::string& name) {
        return name == part.weight ? DevicePart(rows) : DevicePart();
      }));
      first += part.rows;
    }
    std::vector<float>& a = Tensor(LoraAName(m.path), {m.r, m.in});
    std::vector<float>& b = Tensor(LoraBName(m.path), {m.out, m.r});
    by_rows ? TakeRows(m, &a, &b) : TakeLeading(m, threads, &a, &b);
    return OkStatus();
  }

  Status Write(Env& env, const std::string& folder, const LoraConfig& config) {
    std::vector<NamedView> views;
    for (auto& [name, tensor] : tensors_) {
      views.push_back({name, {reinterpret_cast<std::byte*>(tensor.numbers.data()), {DType::kF32, tensor.shape}}});
    }
    return WriteAdapter(env, folder, config, views);
  }
  void NegateB() {
    for (auto& [name, tensor] : tensors_) {
      if (name.find(".lora_B.") == std::string::npos) continue;
      for (float& x : tensor.numbers) x = -x;
    }
  }
  double residual() const { return residual_; }

 private:
  struct Numbers {
    Shape shape;
    std::vector<float> numbers;
  };
  std::vector<float>& Tensor(const std::string& name, const Shape& shape) {
    Numbers& tensor = tensors_[name];
    tensor = {shape, std::vector<float>(static_cast<size_t>(shape.elements()))};
    return tensor.numbers;
  }

  // PiSSA: s B A are the leading terms of W's singular value decomposition, each value's root in A and in B.
  void TakeLeading(const LoraModule& m, int threads, std::vector<float>* a, std::vector<float>* b) {
    const LeadingFactors factors = LeadingFactorsOf(w_, m.out, m.in, m.r, threads);
    residual_ = std::max(residual_, factors.residual);
    for (int64_t k = 0; k < m.r; ++k) {
      const auto root = static_cast<float>(std::sqrt(factors.values[static_cast<size_t>(k)] / m.scale));
      for (int64_t i = 0; i < m.in; ++i) {
        const auto at = static_cast<size_t>(k * m.in + i);
        (*a)[at] = root * factors.right_RN[at];
      }
      for (int64_t i = 0; i < m.out; ++i) {
        const auto at = static_cast<size_t>(i * m.r + k);
        (*b)[at] = root * factors.left_MR[at];
      }
    }
  }

  // OLoRA: B is the first columns of Q, A the first rows of R, of W = Q R. By Gram and Schmidt, twice; LAPACK's
  // Householder reflections may give a column of Q and a row of R the other sign, which B A does not have.
  void TakeRows(const LoraModule& m, std::vector<float>* a, std::vector<float>* b) const {
    std::vector<std::vector<double>> q;
    for (int64_t k = 0; k < m.r; ++k) {
      std::vector<double> x(static_cast<size_t>(m.out));
      for (int64_t i = 0; i < m.out; ++i)
        x[static_cast<size_t>(i)] = static_cast<double>(w_[static_cast<size_t>(i * m.in + k)]);
      for (int pass = 0; pass < 2; ++pass) {
        for (const std::vector<double>& other : q) {
          double dot = 0;
          for (size_t i = 0; i < x.size(); ++i) dot += x[i] * other[i];
          for (size_t i = 0; i < x.size(); ++i) x[i] -= dot * other[i];
        }
      }
      double squares = 0;
      for (const double e : x) squares += e * e;
      for (double& e : x) e = squares > 0 ? e / std::sqrt(squares) : 0;
      for (int64_t i = 0; i < m.out; ++i) {
        (*b)[static_cast<size_t>(i * m.r + k)] = static_cast<float>(x[static_cast<size_t>(i)]);
      }
      std::vector<double> row(static_cast<size_t>(m.in));
      for (int64_t i = 0; i < m.out; ++i) {
        const float* const of_w = w_.data() + i * m.in;
        for (size_t c = 0; c < row.size(); ++c) row[c] += x[static_cast<size_t>(i)] * static_cast<double>(of_w[c]);
      }
      std::copy(row.begin(), row.end(), a->begin() + static_cast<ptrdiff_t>(k * m.in));
      q.push_back(std::move(x));
    }
  }

  std::map<std::string, Numbers> tensors_;
  std::vector<float> w_;
  double residual_ = 0;
};

}  // namespace

bool ChangesBase(const std::string& init_lora_weights) {
  return init_lora_weights != "true";
}

Result<ResidualModel> MakeResidualModel(Env& env, const ResidualModelRequest& request) {
  const std::string& init = request.init_lora_weights;
  TEMPER_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(env, {.model = request.model}));
  if (model.adapter()) {
    return InvalidArgument(
        fmt::format("init_lora_weights: {} begins adapters anew, and {} is an adapter: remove init_lora_weights, or "
                    "train what temper export makes of it",
                    init, model.source().adapter_folder));
  }
  const auto& format = model.model().facts().modules_format;
  if (format && !TrainsInFull(*format)) {
    return Unsupported(
        fmt::format("init_lora_weights: {}: the weights of {} are quantised: give the model that they were made from, "
                    "and base_dtype for what is left of it",
                    init, request.model));
  }
  TEMPER_RETURN_IF_ERROR(model.OpenWeights());
  TEMPER_ASSIGN_OR_RETURN(const TrainableSet trains, ResolveTrainable(model.model(), request.lora));
  Json modules = Json::array();
  for (const LoraModule& m : trains.adapters) {
    TEMPER_RETURN_IF_ERROR(CheckModule(m, init));
    modules.push_back({m.path, m.r, m.scale});
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string digest, model.Digest());
  const std::string kind = init.starts_with("pissa") ? "pissa" : init;
  const Json record = {{"base", model.folder()},
                       {"base_digest", digest},
                       {"init_lora_weights", kind},
                       {"adapters", modules},
                       {"f32", request.in_f32}};
  const BaseBeside beside(env, request.output_dir, "init_lora_weights", record.dump(1) + "\n");
  const ResidualModel made{beside.folder(), JoinPath(beside.folder(), kFirstFolder)};
  TEMPER_ASSIGN_OR_RETURN(const bool there, beside.IsThere());
  if (there) return made;
  TEMPER_RETURN_IF_ERROR(beside.Begin());
  std::map<std::string, StoredWeight> stored;
  for (const StoredWeight& w : model.model().StoredWeights()) stored.emplace(w.name, w);
  FirstAdapter first;
  {
    TransferProgress progress("begin adapters");
    Bytes done, total;
    for (const LoraModule& m : trains.adapters) total += Bytes{4 * m.in * m.out};
    for (const LoraModule& m : trains.adapters) {
      TEMPER_RETURN_IF_ERROR(first.Add(m, model, stored, kind == "olora", request.threads));
      done += Bytes{4 * m.in * m.out};
      progress.Update(done, total);
    }
  }
  LoraConfig config = request.lora;
  config.modules_to_save = std::vector<std::string>();
  config.trainable_token_indices.clear();
  config.ensure_weight_tying = false;
  config.base_model = beside.folder();
  constexpr double kClose = 1e-5;
  if (first.residual() > kClose) {
    LogWarning(
        fmt::format("init_lora_weights: {}: singular vectors were found to {:.0e} only: two values of a weight are "
                    "almost the same, and any choice between their vectors is as good",
                    init, first.residual()));
  }
  TEMPER_RETURN_IF_ERROR(first.Write(env, made.adapter, config));
  // The base is what merging the opposite leaves.
  first.NegateB();
  const std::string taken = JoinPath(beside.folder(), kTakenFolder);
  config.base_model = model.folder();
  TEMPER_RETURN_IF_ERROR(first.Write(env, taken, config));
  TEMPER_ASSIGN_OR_RETURN(OpenedModel without, OpenedModel::Open(env, {.model = request.model, .adapter = taken}));
  TEMPER_ASSIGN_OR_RETURN(ExportSpec spec, without.ExportPlan());
  spec.output_dir = beside.folder();
  spec.overwrite = true;
  if (request.in_f32) spec.dtype = DType::kF32;
  TransferProgress verifying("verify"), exporting("base without first adapters");
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report,
                          ExportModel(env, spec, exporting.Callback(), verifying.Callback()));
  TEMPER_RETURN_IF_ERROR(env.RemoveTree(taken));
  TEMPER_RETURN_IF_ERROR(beside.Finish());
  LogInfo(fmt::format("{:<11} {} adapters begin as parts of their weights; {} is the model without them, {}", kind,
                      trains.adapters.size(), beside.folder(), ToString(report.bytes)));
  return made;
}

}  // namespace temper
