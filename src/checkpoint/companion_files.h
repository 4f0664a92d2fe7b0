// The files beside a model's weights that make its folder complete: config.json, the tokenizer's, the generation
// settings, the chat template. They are copied byte for byte.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

inline constexpr char kModelConfigFile[] = "config.json";

bool IsCompanionFile(std::string_view name);
// Those of the tokenizer and the chat template, which also lie beside an adapter.
bool IsTokenizerFile(std::string_view name);
// Names of those that `model_folder` has, sorted; config.json among them. kNotFound if that is missing.
Result<std::vector<std::string>> CompanionFiles(Env& env, const std::string& model_folder);

// Size of a file and ChecksumHex of its bytes.
struct FileDigest {
  Bytes bytes;
  std::string checksum;
};
// Copies one file, synced; the digest is of the written bytes. Bounded memory; errors name the file.
Result<FileDigest> CopyFileDurably(Env& env, const std::string& from, const std::string& to);
// For an existing file. Bounded memory. `read`, if set, is called for each piece with its size.
Result<FileDigest> DigestFile(Env& env, const std::string& path, const std::function<void(Bytes)>& read = nullptr);

}  // namespace temper
