// The families of models that Temper computes (model/family_list.inc). A family's file defines the reader that the list
// names; only the tables in families.cc include the list, so that a new line recompiles nothing else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/model.h"

namespace temper {

// The model that the config.json of a family describes. `where` names the file in errors.
using FamilyReader = Result<std::unique_ptr<Model>>(const Json& config, const std::string& where);

// Reads config.json with the reader of its family. Other architectures are kUnsupported: the message says what one of
// transformers' needs that is missing (model/missing_list.inc); of an unknown one it names the nearest and lists all.
Result<std::unique_ptr<Model>> ModelFromConfig(const Json& config, const std::string& where);

// The class of transformers that puts a head of classes on the body of that one: "LlamaForSequenceClassification" of
// "LlamaForCausalLM". Empty: there is none that ends in a linear module `score` without bias.
std::string_view ClassifierOf(std::string_view architecture);

}  // namespace temper
