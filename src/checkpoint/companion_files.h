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

// Where transformers keeps the chat templates beside chat_template.jinja: NAME.jinja each.
inline constexpr char kCompanionFolder[] = "additional_chat_templates";

// `name`: relative to the model's folder, "additional_chat_templates/tool_use.jinja" for one.
bool IsCompanionFile(std::string_view name);
bool IsInCompanionFolder(std::string_view name);
// Those of the tokenizer and the chat template, which also lie beside an adapter.
bool IsTokenizerFile(std::string_view name);
// Names of those that `model_folder` has, sorted; config.json among them. kNotFound if that is missing.
Result<std::vector<std::string>> CompanionFiles(Env& env, const std::string& model_folder);
// The same of any folder, without its config.json perhaps.
Result<std::vector<std::string>> CompanionFilesIn(Env& env, const std::string& folder);

// Size of a file and ChecksumHex of its bytes.
struct FileDigest {
  Bytes bytes;
  std::string checksum;
};
// Makes the folder that `name` lies in below `folder`, if it is another one.
Status CreateFolderFor(Env& env, const std::string& folder, const std::string& name);
// Copies one file, synced; the digest is of the written bytes. Bounded memory; errors name the file.
Result<FileDigest> CopyFileDurably(Env& env, const std::string& from, const std::string& to);
// For an existing file. Bounded memory. `read`, if set, is called for each piece with its size.
Result<FileDigest> DigestFile(Env& env, const std::string& path, const std::function<void(Bytes)>& read = nullptr);

}  // namespace temper
