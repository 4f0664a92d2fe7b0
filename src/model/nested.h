// Nested: the text model of a multimodal folder. config.json describes it under text_config; its class is that of a
// family of its own, whose reader reads it. What else the folder holds (a vision tower, a projector) is not computed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/model.h"

namespace temper {

// How files name the text model's tensors. In memory, and so to PEFT, they are model.language_model.layers.0...,
// lm_head; files of one kind are read where the other is usual, too.
enum class NestedNames : uint8_t {
  kPrefixed,    // language_model.model.layers.0..., language_model.lm_head
  kAsInMemory,  // model.language_model.layers.0..., lm_head
  kTextModel,   // text_model.model.layers.0..., text_model.lm_head; in memory model.text_model.layers.0... (Emu 3)
};

// `text` under the names that it has inside the multimodal class `architecture`.
std::unique_ptr<Model> MakeNested(std::unique_ptr<Model> text, std::string architecture, NestedNames names);

}  // namespace temper
