// First values of what is trained: a new LoRA adapter, or a model from scratch. A value is a function of (seed, the
// tensor's name, the element's place), so it does not depend on threads or ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/lora.h"
#include "model/model.h"
#include "tensor/view.h"

namespace temper {

// Calls fill(piece) for pieces in the host's memory that cover what a Program holds of the buffer with that name, and
// keeps what it wrote; does nothing where there is no such buffer.
using FillBuffer = std::function<Status(const std::string& name, const std::function<void(const PartView&)>& fill)>;

// A ~ U(-1/sqrt(in), 1/sqrt(in)) (PEFT's kaiming_uniform with a = sqrt(5)), B = 0: the adapted model starts as the
// base. Fills masters where there are any.
Status InitializeLora(const std::vector<LoraModule>& targets, uint64_t seed, const FillBuffer& buffer);

// Matrices ~ N(0, initializer_range^2), some of GPT-2's by depth, biases 0, norm weights 1, as transformers'
// _init_weights.
Status InitializeModel(const Model& model, uint64_t seed, const FillBuffer& buffer);

}  // namespace temper
