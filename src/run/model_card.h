// The model card of a result: README.md beside its weights, as PEFT and TRL write it and the Hugging Face Hub shows it.
// It depends only on what the run computed, so that a run that was stopped and resumed has the same card.
#pragma once

#include <optional>
#include <string>

#include "base/env.h"
#include "format/lora_config.h"
#include "settings/run_config.h"
#include "train/loop.h"

namespace temper {

inline constexpr char kModelCardFile[] = "README.md";

struct ModelCardFacts {
  const RunConfig& config;         // resolved
  std::optional<LoraConfig> lora;  // of the result, if it is an adapter
  std::string architecture;        // of the base model
  int64_t parameters = 0, trained = 0;
  int64_t samples = 0;  // to train on
  int64_t data_ranks = 1;
  const RunProgress& progress;
  std::optional<double> loss;          // the last one in metrics.jsonl
  bool diverged = false;               // at the end, and the result is not from before
  bool chats = false;                  // the model has a chat template
  bool own_generation_config = false;  // lies beside the adapter, where transformers does not look for one
};

std::string ModelCard(const ModelCardFacts& facts);

// Whether this file is a card of ours, not one that a user wrote.
bool IsOwnModelCard(Env& env, const std::string& path);

// Writes the card into `folder`, unless a user's README.md is there.
Status WriteModelCard(Env& env, const std::string& folder, const ModelCardFacts& facts);

// Writes the card of an export of `result`, an adapter or a model, into `folder`: from the card beside it, if that is
// ours; as above a user's stays.
Status WriteExportedCard(Env& env, const std::string& result, bool adapter, const std::string& folder);

}  // namespace temper
