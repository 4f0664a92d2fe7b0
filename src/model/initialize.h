// Initial values of a new LoRA adapter, or of a model trained from scratch. A value is a function of (seed, tensor
// name, element index), so it does not depend on threads or ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/lora.h"
#include "model/model.h"
#include "tensor/view.h"

namespace temper {

// Calls fill(piece) for pieces in the host's memory that cover this rank's part of the buffer `name`, and stores the
// result in the buffer. Does nothing if the Program has no such buffer.
using FillBuffer = std::function<Status(const std::string& name, const std::function<void(const PartView&)>& fill)>;

// A ~ U(-1/sqrt(in), 1/sqrt(in)) (PEFT's kaiming_uniform with a = sqrt(5)), B = 0: the adapted model starts as the
// base. Fills master weights, too, if there are any.
Status InitializeLora(const std::vector<LoraModule>& targets, uint64_t seed, const FillBuffer& buffer);

// Matrices ~ N(0, initializer_range^2), some of GPT-2's by depth, biases 0, norm weights 1, as transformers'
// _init_weights.
Status InitializeModel(const Model& model, uint64_t seed, const FillBuffer& buffer);

// The same for the model's head alone, and the copy of it that an adapter has.
Status InitializeHead(const Model& model, uint64_t seed, const FillBuffer& buffer);

}  // namespace temper
