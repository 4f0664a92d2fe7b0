// What tokens ask of experts, and the loss that balances it. Threads share the tokens of sums, in blocks of a fixed
// size; the rest is a pass over the choices of tokens or over E numbers a block, which one thread makes.
#include "graph/ops/balance.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "base/team.h"
#include "graph/ops/routed_rows.h"

namespace temper {
namespace {

// Exponentials of a token's logits, and what they are divided by.
template <class T>
float ExponentialsOf(const T* logit_E, int64_t E, float* exp_E) {
  for (int64_t e = 0; e < E; ++e) exp_E[e] = ToFloat(logit_E[e]);
  const float largest = *std::max_element(exp_E, exp_E + E);
  float sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += exp_E[e] = std::exp(exp_E[e] - largest);
  return sum;
}

// E / n^2, of which an expert has as many as tokens chose it. 0 of no tokens.
double FactorOf(const float* load_LE, int64_t blocks, int64_t E, int64_t active) {
  double rows = 0;
  for (int64_t i = 0; i < blocks * E; ++i) rows += load_LE[i];
  const double tokens = rows / static_cast<double>(active);
  return tokens == 0 ? 0 : static_cast<double>(E) / (tokens * tokens);
}
double LoadOf(const float* load_LE, int64_t blocks, int64_t E, int64_t e) {
  double load = 0;
  for (int64_t l = 0; l < blocks; ++l) load += load_LE[l * E + e];
  return load;
}

}  // namespace

std::unique_ptr<Kernel> MakeExpertLoad(const KernelSpec& spec, Isa) {
  const int64_t E = spec.attributes.Int("experts"), block = spec.attributes.IntOr("block", 0);
  const int64_t all = spec.outputs[0].shape.elements(), T = spec.inputs[1].shape[0], A = spec.inputs[1].shape[1];
  const bool acc = spec.attributes.Flag("acc");
  return MakeKernel([=](const KernelArgs& args) -> Status {
    const int32_t *const expert_P = In<int32_t>(args, 0), *const place_TA = In<int32_t>(args, 1);
    const float *const present_T = In<float>(args, 2), *const acc_LE = acc ? In<float>(args, 3) : nullptr;
    float* const load_LE = Out<float>(args, 0);
    TEMPER_RETURN_IF_ERROR(CheckPlaces(place_TA, T * A, T * A));
    if (!acc) std::fill_n(load_LE, all, 0.0F);
    if (acc && acc_LE != load_LE) std::copy_n(acc_LE, all, load_LE);
    for (int64_t i = 0; i < T * A; ++i) {
      const int32_t e = expert_P[place_TA[i]];
      if (e < 0 || e >= E) return Corrupt("a row is of an expert that is not there");
      load_LE[block * E + e] += present_T[i / A];
    }
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeRouterSum(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[0].shape[0];
    const ExpertPart part = ExpertPartOf(spec.inputs[0].shape[1], spec.attributes);
    const bool acc = spec.attributes.Flag("acc");
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const T* const logits_TE = In<T>(args, 0);
      const float* const present_T = In<float>(args, 1);
      const int64_t V = part.count, blocks = (tokens + kRouterSumTokens - 1) / kRouterSumTokens;
      auto* const sum_BV = reinterpret_cast<float*>(args.workspace);
      float* const scratch = sum_BV + blocks * V;
      RunTeam(threads, [&](TeamMember self) {
        float* const exp_E = scratch + self.index * part.experts;
        for (int64_t b = blocks * self.index / self.size; b < blocks * (self.index + 1) / self.size; ++b) {
          float* const sum_V = sum_BV + b * V;
          std::fill_n(sum_V, V, 0.0F);
          for (int64_t t = b * kRouterSumTokens; t < std::min(tokens, (b + 1) * kRouterSumTokens); ++t) {
            if (present_T[t] == 0) continue;
            const float factor = present_T[t] / ExponentialsOf(logits_TE + t * part.experts, part.experts, exp_E);
            for (int64_t v = 0; v < V; ++v) sum_V[v] += factor * exp_E[part.begin + v];
          }
        }
      });
      for (int64_t v = 0; v < V; ++v) {
        double sum = acc ? In<float>(args, 2)[v] : 0;
        for (int64_t b = 0; b < blocks; ++b) sum += sum_BV[b * V + v];
        Out<float>(args, 0)[v] = static_cast<float>(sum);
      }
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeRouterSumBackward(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[1]})) return nullptr;
  return DispatchFloat(spec.inputs[1].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[1].shape[0];
    const ExpertPart part = ExpertPartOf(spec.inputs[1].shape[1], spec.inputs[0].shape[0], spec.attributes);
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const float *const d_sum_V = In<float>(args, 0), *const present_T = In<float>(args, 2);
      const T* const logits_TE = In<T>(args, 1);
      T* const d_logits_TE = Out<T>(args, 0);
      RunTeam(threads, [&](TeamMember self) {
        const int64_t E = part.experts;
        float* const exp_E = reinterpret_cast<float*>(args.workspace) + self.index * E;
        for (int64_t t = tokens * self.index / self.size; t < tokens * (self.index + 1) / self.size; ++t) {
          T* const d_E = d_logits_TE + t * E;
          if (present_T[t] == 0) {
            std::fill_n(d_E, E, FromFloat<T>(0));
            continue;
          }
          const float sum = ExponentialsOf(logits_TE + t * E, E, exp_E);
          float of_all = 0;
          for (int64_t v = 0; v < part.count; ++v) of_all += d_sum_V[v] * exp_E[part.begin + v];
          of_all /= sum;
          const float factor = present_T[t] / sum;
          for (int64_t e = 0; e < E; ++e) {
            const int64_t v = e - part.begin;
            const float d = v >= 0 && v < part.count ? d_sum_V[v] : 0;
            d_E[e] = FromFloat<T>(factor * exp_E[e] * (d - of_all));
          }
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeBalance(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1]})) return nullptr;
  const int64_t blocks = spec.inputs[0].shape[0], active = spec.attributes.Int("active");
  const ExpertPart part = ExpertPartOf(spec.inputs[0].shape[1], spec.inputs[1].shape[0], spec.attributes);
  return MakeKernel([=](const KernelArgs& args) {
    const float *const load_LE = In<float>(args, 0), *const sum_V = In<float>(args, 1);
    double loss = 0;
    for (int64_t v = 0; v < part.count; ++v) loss += LoadOf(load_LE, blocks, part.experts, part.begin + v) * sum_V[v];
    *Out<float>(args, 0) = static_cast<float>(loss * FactorOf(load_LE, blocks, part.experts, active));
    return OkStatus();
  });
}

std::unique_ptr<Kernel> MakeBalanceBackward(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1]})) return nullptr;
  const int64_t blocks = spec.inputs[1].shape[0], active = spec.attributes.Int("active");
  const ExpertPart part = ExpertPartOf(spec.inputs[1].shape[1], spec.outputs[0].shape[0], spec.attributes);
  return MakeKernel([=](const KernelArgs& args) {
    const float* const load_LE = In<float>(args, 1);
    const double factor = *In<float>(args, 0) * FactorOf(load_LE, blocks, part.experts, active);
    for (int64_t v = 0; v < part.count; ++v) {
      Out<float>(args, 0)[v] = static_cast<float>(factor * LoadOf(load_LE, blocks, part.experts, part.begin + v));
    }
    return OkStatus();
  });
}

}  // namespace temper
