// Safetensors files whose numbers encode their place, for tests of the disk tier.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/scratch_folder.h"
#include "disk/stored_slice.h"
#include "format/conversion.h"
#include "format/model_weights.h"
#include "format/safetensors_writer.h"

namespace temper {

inline void Must(const Status& s) {
  ASSERT_TRUE(s.ok()) << s.message();
}
template <class T>
T Must(Result<T> r) {
  EXPECT_TRUE(r.ok()) << r.status().message();
  TEMPER_CHECK(r.ok()) << r.status().message();
  return std::move(*r);
}

// Random numbers of that type, none of them NaN (whose bits need not survive a conversion); zeros for integers.
inline std::vector<std::byte> RandomTensor(TensorType type, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> numbers(static_cast<size_t>(type.shape.elements()));
  for (float& x : numbers) x = static_cast<float>(static_cast<double>(random()) * 0x1p-60 - 8);
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes().v));
  if (!IsFloating(type.dtype)) return bytes;
  Convert(DType::kF32, std::as_bytes(std::span(numbers)).data(), type.dtype, bytes.data(), type.shape.elements());
  return bytes;
}

// Writes `path` with these tensors, seeded by their index in the list. `odd_header`: the header is one byte longer than
// the writer would make it, so that no element is aligned in the file; other programs write such files.
inline void WriteModelFile(const std::string& path, const std::vector<TensorDeclaration>& tensors,
                           bool odd_header = false) {
  auto writer = Must(SafetensorsWriter::Create(PosixEnv(), path, tensors));
  for (const StoredTensor& stored : writer.order()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == stored.name) Must(writer.Append(stored.name, RandomTensor(tensors[i].type, i)));
    }
  }
  Must(writer.Finish());
  if (!odd_header) return;
  std::string text = Must(ReadTextFile(PosixEnv(), path));
  uint64_t length;
  std::memcpy(&length, text.data(), sizeof length);
  text.insert(sizeof length + length, 1, ' ');
  ++length;
  std::memcpy(text.data(), &length, sizeof length);
  auto file = Must(PosixEnv().OpenForWrite(path));
  Must(file->Append(text));
  Must(file->Close());
}

// The whole of a tensor, as `dtype`, without memory.
inline PartView WholeOf(const ModelWeights::Entry& entry, DType dtype) {
  return View{nullptr, {dtype, entry.tensor->type()->shape}};
}

// The one slice of a part that is one run.
inline Result<StoredSlice> FindSlice(const ModelWeights::Entry& entry, const PartView& part) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<StoredSlice> slices, FindSlices(entry, part));
  TEMPER_CHECK(slices.size() == 1) << slices.size() << " slices of " << entry.tensor->name;
  return slices[0];
}

}  // namespace temper
