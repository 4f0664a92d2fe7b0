// `temper export --format gguf`: writes a model as one GGUF file, which llama.cpp and what is built on it load. The
// adapter, if any, is merged. Weights stream through in pieces of rows, each read, merged and encoded by one thread;
// memory is bounded by some pieces and the adapter of one module (of matrices that files store transposed: one matrix).
#pragma once

#include <string>

#include "checkpoint/export_spec.h"
#include "checkpoint/weight_checksums.h"
#include "format/gguf/gguf_tensor.h"
#include "format/gguf/quant_mix.h"

namespace temper {

struct GgufExportSpec {
  ExportSpec source;      // output_dir, overwrite and what is exported; other fields do not count
  GgufModel model;        // of the base
  GgufMetadata metadata;  // the tokenizer, names; goes behind general.architecture
  QuantMix mix = QuantMix::kF16;
  std::string file;  // its name in output_dir
  int threads = 1;
};

// The file appears under its name when it is whole. Errors: beside those of files, numbers that the type cannot hold
// (kNumerical), and an adapter that changes a head which the architecture ties to the embedding (kUnsupported).
Result<ExportReport> ExportGguf(Env& env, GgufExportSpec spec, const TransferCallback& progress = nullptr,
                                const TransferCallback& verifying = nullptr);

}  // namespace temper
