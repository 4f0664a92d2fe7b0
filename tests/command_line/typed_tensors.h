// The tensors of a model's folder, with their bytes: for tests that write a model in another way.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/safetensors.h"
#include "format/sharded_safetensors_writer.h"
#include "temper_program.h"

namespace temper::program {

using TypedTensors = std::map<std::string, std::pair<StoredTensor, std::string>>;  // types and bytes

inline TypedTensors TensorsIn(const std::string& folder) {
  TypedTensors tensors;
  for (const std::string& file : Must(PosixEnv().List(folder))) {
    if (!file.ends_with(".safetensors")) continue;
    const auto opened = Must(SafetensorsFile::Open(PosixEnv(), JoinPath(folder, file)));
    for (const StoredTensor& t : opened.tensors()) {
      std::string bytes(static_cast<size_t>(t.bytes().v), 0);
      TEMPER_CHECK(opened.ReadTensor(t.name, std::as_writable_bytes(std::span(bytes.data(), bytes.size()))).ok());
      tensors[t.name] = {t, std::move(bytes)};
    }
  }
  return tensors;
}

inline void WriteTensors(const std::string& folder, const TypedTensors& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, t] : tensors) declared.push_back({.name = name, .type = {}, .as = &t.first});
  auto writer = Must(ShardedSafetensorsWriter::Create(PosixEnv(), folder, declared));
  for (const StoredTensor& t : writer.order()) {
    TEMPER_CHECK(writer.Append(t.name, std::as_bytes(std::span(tensors.at(t.name).second))).ok());
  }
  TEMPER_CHECK(writer.Finish().ok());
}

}  // namespace temper::program
