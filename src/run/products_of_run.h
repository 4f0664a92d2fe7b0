// Which algorithms compute the matrix products of a run on GPUs: as its checkpoint says, else the fastest, by time.
// What they add up in which order depends on the algorithm, so all ranks and all resumed runs have to take the same.
#pragma once

#include <span>
#include <string>

#include "device/product_choices.h"
#include "run/ranks.h"

namespace temper {

// Of a checkpoint: {"cuBLASLt 13.1.0 on NVIDIA H200": {PRODUCT: ALGORITHM, ...}, ...}.
inline constexpr char kProductsFile[] = "products.json";

std::string FormatProducts(const ProductChoices& choices);
// kCorrupt if the text is not of that form.
Result<ProductChoices> ParseProducts(const std::string& text);

// Chooses those of this rank's `device`, with `memory` as Device::ChooseProducts wants it. One rank after the other:
// what an earlier one has chosen on a device of the same kind, a later one takes. Logs what was timed, and warns where
// what the checkpoint kept (`kept`) cannot be had here. All ranks make this call at the same place, and all return the
// same.
Result<ProductChoices> ChooseProductsInTurn(const Ranks& ranks, Device& device, std::span<std::byte> memory,
                                            const ProductChoices& kept);

}  // namespace temper
