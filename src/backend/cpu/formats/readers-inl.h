// The readers of one instruction set. Included after its vec_*.h (backend/cpu/vector).
#pragma once

#include "backend/cpu/formats/format_readers.h"

// clang-format off
#include "backend/cpu/formats/bytes-inl.h"
#include "backend/cpu/formats/int8-inl.h"
#include "backend/cpu/formats/nf4-inl.h"
#include "backend/cpu/formats/mxfp4-inl.h"
#include "backend/cpu/formats/fp8-inl.h"
#include "backend/cpu/formats/gguf-inl.h"
#include "backend/cpu/formats/int4-inl.h"
// clang-format on

namespace temper {
namespace {

constexpr ReadRunFn kReaders[] = {
#define TEMPER_FORMAT(name) Read##name,
#include "tensor/format_list.inc"
#undef TEMPER_FORMAT
};

}  // namespace
}  // namespace temper
