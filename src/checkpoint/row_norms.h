// The norms of rows that DoRA's magnitudes stand over (Liu et al. 2024), computed from the files when weights are
// loaded: they are in no file. In f32, of the numbers that kernels compute with: rounded, or dequantised.
#pragma once

#include <span>

#include "checkpoint/adapter.h"
#include "checkpoint/load_weights.h"
#include "format/lora_module.h"

namespace temper {

enum class NormsOf : uint8_t { kWeight, kSum };  // of W, or of W + scale * B A

// Fills the squares (LoraModule::Part) of each module that has magnitudes; with `magnitudes` these, too, as an adapter
// begins in PEFT: with the norms of W, so that the model is its base. Reads the weights once more, some rows at a time.
// `adapter`: for kSum; `buffer` has A and B, for their types. Does nothing where no module has magnitudes.
Status LoadRowNorms(const ModelWeights& files, std::span<const StoredWeight> weights,
                    std::span<const LoraModule> modules, NormsOf of, const AdapterReader* adapter, bool magnitudes,
                    const BufferLookup& buffer);

// sums[i] = sum of squares of row i of x [rows, columns], row-major.
void SquaresOfRows(const float* x, int64_t rows, int64_t columns, float* sums);

}  // namespace temper
