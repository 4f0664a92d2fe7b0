// For tests: the tensors of a safetensors file, read and written whole; the goldens of whole runs.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "format/safetensors.h"
#include "format/safetensors_writer.h"
#include "temper_program.h"

namespace temper::program {

inline const std::string kGoldens = std::string(kProjectFolder) + "/tests/parity/goldens";

inline void Good(const Status& status) {
  TEMPER_CHECK(status.ok()) << status.message();
}

using Tensors = std::map<std::string, std::pair<TensorType, std::vector<std::byte>>>;

inline Tensors Read(const std::string& path) {
  const SafetensorsFile file = Must(SafetensorsFile::Open(PosixEnv(), path));
  Tensors tensors;
  for (const StoredTensor& t : file.tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes().v));
    Good(file.ReadRange(t.name, 0, bytes));
    tensors[t.name] = {Must(t.type()), std::move(bytes)};
  }
  return tensors;
}
inline void Write(const std::string& path, const Tensors& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, tensor] : tensors) declared.push_back({name, tensor.first});
  SafetensorsWriter writer = Must(SafetensorsWriter::Create(PosixEnv(), path, std::move(declared)));
  for (const StoredTensor& t : writer.order()) Good(writer.Append(t.name, tensors.at(t.name).second));
  Good(writer.Finish());
}
// The elements of a tensor as f32.
inline std::vector<float> Floats(const std::pair<TensorType, std::vector<std::byte>>& tensor) {
  std::vector<float> x(static_cast<size_t>(tensor.first.shape.elements()));
  for (size_t i = 0; i < x.size(); ++i) {
    uint32_t bits = 0;
    if (tensor.first.dtype == DType::kF32) {
      std::memcpy(&bits, tensor.second.data() + 4 * i, 4);
    } else {
      uint16_t half;
      std::memcpy(&half, tensor.second.data() + 2 * i, 2);
      bits = uint32_t{half} << 16;
    }
    std::memcpy(&x[i], &bits, 4);
  }
  return x;
}

// How far a tensor moves: the L2 norm of the change, and its sum.
struct Change {
  double l2 = 0, sum = 0;
};
inline Change ChangeOf(const std::vector<float>& before, const std::vector<float>& after) {
  TEMPER_CHECK(before.size() == after.size());
  double squares = 0;
  Change change;
  for (size_t i = 0; i < before.size(); ++i) {
    const double d = double{after[i]} - before[i];
    squares += d * d;
    change.sum += d;
  }
  change.l2 = std::sqrt(squares);
  return change;
}

}  // namespace temper::program
