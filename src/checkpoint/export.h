// `temper export`: writes a model as a Hugging Face folder that transformers loads. The adapter, if any, is merged:
// W + scale * B A in f32 with one rounding. Weights stream through in pieces of rows; memory is bounded by the adapter
// of one module and a few MiB.
#pragma once

#include "checkpoint/export_spec.h"
#include "checkpoint/weight_checksums.h"

namespace temper {

// config.json is written last: an interrupted export is not a model folder. Files beside the weights are copied byte
// for byte, except those replaced, and config.json if the dtype or the tying of the embeddings changes.
Result<ExportReport> ExportModel(Env& env, const ExportSpec& spec, const TransferCallback& progress = nullptr,
                                 const TransferCallback& verifying = nullptr);
// The mean of several models (checkpoint/mean_weights.h); all else is as of the first. REQUIRES: at least one.
Result<ExportReport> ExportMean(Env& env, std::span<const ExportSpec> specs, const TransferCallback& progress = nullptr,
                                const TransferCallback& verifying = nullptr);

}  // namespace temper
