// Which algorithms compute the matrix products of a run on GPUs: those of its checkpoint if it has them, else the
// fastest measured. An algorithm fixes the order in which terms are added, so all ranks and all resumed runs must use
// the same one.
#pragma once

#include <span>
#include <string>

#include "device/product_choices.h"
#include "run/ranks.h"

namespace temper {

// Of a checkpoint: {"LIBRARY VERSION on DEVICE": {PRODUCT: ALGORITHM, ...}, ...}.
inline constexpr char kProductsFile[] = "products.json";

std::string FormatProducts(const ProductChoices& choices);
// kCorrupt if the text is not of that form.
Result<ProductChoices> ParseProducts(const std::string& text);

// Chooses those of this rank's `device`, with `memory` as Device::ChooseProducts wants it. Ranks choose one after the
// other, and take what an earlier one has chosen on a device of the same kind. Logs what was timed, and warns if this
// library does not offer what the checkpoint has (`kept`). All ranks make this call at the same place, and all return
// the same.
Result<ProductChoices> ChooseProductsInTurn(const Ranks& ranks, Device& device, std::span<std::byte> memory,
                                            const ProductChoices& kept);

}  // namespace temper
