// ClassHead: the head of classes that a model's files have, or that a run puts on a model of language.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/env.h"
#include "format/class_names.h"

namespace temper {

struct ClassHead {
  ClassNames classes;
  std::optional<int32_t> pad;  // the token that batches are filled with; sequences do not end with it
  bool added = false;          // the model's folder has no weight for it
  std::string config;          // if added: the text of a config.json with it
};

// Says which classes a model without a head of classes gets.
using FindsClasses = std::function<Result<ClassNames>()>;

// nullopt: the model has none, and `wanted` is null. One that an adapter was trained with is found in `adapter_folder`.
// Errors: no class of transformers puts such a head on this model.
Result<std::optional<ClassHead>> FindClassHead(Env& env, const std::string& folder, const std::string& adapter_folder,
                                               const FindsClasses& wanted);
// The config.json of a known model, with a head of these classes.
Result<Json> WithClassHead(const Json& config, const ClassNames& classes, const std::string& where);

}  // namespace temper
