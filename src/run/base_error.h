// What quantising the base costs, measured before a run trains on it: how far its logits are from those of the weights
// in the files, over the beginnings of some samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/token_store.h"
#include "run/opened_model.h"
#include "settings/run_config.h"

namespace temper {

struct BaseError {
  // ||q - z|| / ||z|| over the logits behind all beginnings; z of the files' weights, q of the quantised ones, each
  // less its mean over the vocabulary, which changes no probability.
  double relative = 0;
  int64_t alike = 0;  // beginnings after which both find the same token most probable
  int64_t texts = 0;

  // For people, of the run with that configuration.
  std::string Describe(const RunConfig& config) const;
};

// Whether the run quantises weights that its files have in full.
bool QuantisesBase(const ModelFacts& facts, const RunConfig& config);

// Reads the weights twice, into memory that it gives back: with the files' numbers in the type that is computed in, and
// quantised. nullopt: memory has no room for that beside the `arena` of the run, which is reserved already. On the CPU.
// REQUIRES: QuantisesBase; the weights are open, the model writes texts, config.machine.threads is set.
Result<std::optional<BaseError>> MeasureBaseError(const OpenedModel& model, const RunConfig& config, Bytes arena,
                                                  const TokenStore& samples);

}  // namespace temper
