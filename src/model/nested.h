// Nested: the text model of a multimodal folder. config.json describes it under text_config; its class is that of a
// family of its own, whose reader reads it. What else the folder holds (a vision tower, a projector) is not computed.
#pragma once

#include <memory>
#include <string>

#include "model/model.h"

namespace temper {

// `text` under the names that it has inside the multimodal class `architecture`.
//   in memory, and so to PEFT: model.language_model.layers.0..., lm_head
//   in files: language_model.model.layers.0..., language_model.lm_head; those of memory are read, too
std::unique_ptr<Model> MakeNested(std::unique_ptr<Model> text, std::string architecture);

}  // namespace temper
