#include "format/sharded_safetensors_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/quoted.h"

namespace temper {

Result<ShardedSafetensorsWriter> ShardedSafetensorsWriter::Create(Env& env, const std::string& folder,
                                                                  std::vector<TensorDeclaration> tensors,
                                                                  Options options) {
  ShardedSafetensorsWriter w(env, folder, std::move(options));
  std::vector<std::string_view> names;
  for (const TensorDeclaration& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return InvalidArgument(fmt::format("{}: tensor {} would be written twice", folder, Quoted(*twice)));
  }
  w.shards_.emplace_back();
  Bytes filled;
  for (TensorDeclaration& t : tensors) {
    const Bytes bytes = t.bytes();
    if (!w.shards_.back().empty() && filled + bytes > w.options_.max_shard) {
      w.shards_.emplace_back();
      filled = {};
    }
    filled += bytes;
    w.data_ += bytes;
    w.shards_.back().push_back(std::move(t));
  }
  const size_t n = w.shards_.size();
  for (size_t i = 0; i < n; ++i) {
    w.names_.push_back(n == 1 ? fmt::format("{}.safetensors", w.options_.stem)
                              : fmt::format("{}-{:05}-of-{:05}.safetensors", w.options_.stem, i + 1, n));
    TEMPER_ASSIGN_OR_RETURN(const Bytes size, SafetensorsWriter::FileSize(w.shards_[i], w.options_.metadata));
    w.total_ += size;
    for (StoredTensor& t : LayOutTensors(w.shards_[i])) {
      w.order_.push_back(std::move(t));
      w.shard_of_.push_back(static_cast<int>(i));
    }
  }
  if (n > 1) w.total_ += {static_cast<int64_t>(w.Index().size())};
  return w;
}

Status ShardedSafetensorsWriter::FinishShard() {
  TEMPER_RETURN_IF_ERROR(writer_->Finish());
  checksums_.push_back(writer_->checksum());
  writer_.reset();
  return OkStatus();
}

Status ShardedSafetensorsWriter::NextShard() {
  if (writer_) TEMPER_RETURN_IF_ERROR(FinishShard());
  ++open_shard_;
  TEMPER_ASSIGN_OR_RETURN(auto next, SafetensorsWriter::Create(*env_, JoinPath(folder_, names_[open_shard_]),
                                                               std::move(shards_[open_shard_]), options_.metadata));
  writer_.emplace(std::move(next));
  writer_->KeepChecksum();
  return OkStatus();
}

Status ShardedSafetensorsWriter::Append(std::string_view name, std::span<const std::byte> bytes) {
  if (!error_.ok() || bytes.empty()) return error_;
  while (current_ < order_.size() && filled_ == order_[current_].bytes().v) {
    ++current_;
    filled_ = 0;
  }
  TEMPER_CHECK(current_ < order_.size()) << folder_ << " is complete, yet bytes of " << name << " come";
  while (error_.ok() && open_shard_ < shard_of_[current_]) error_ = NextShard();
  if (error_.ok()) error_ = writer_->Append(name, bytes);
  filled_ += static_cast<int64_t>(bytes.size());
  return error_;
}

Status ShardedSafetensorsWriter::Finish() {
  while (error_.ok() && open_shard_ + 1 < static_cast<int>(shards_.size())) error_ = NextShard();
  if (error_.ok()) error_ = FinishShard();
  if (error_.ok() && names_.size() > 1) {
    error_ = WriteTextFileAtomically(*env_, JoinPath(folder_, options_.stem + ".safetensors.index.json"), Index());
  }
  return error_;
}

// As transformers writes it: keys sorted, two spaces, a newline at the end.
std::string ShardedSafetensorsWriter::Index() const {
  Json weight_map = Json::object();
  for (size_t i = 0; i < order_.size(); ++i) weight_map[order_[i].name] = names_[shard_of_[i]];
  const Json index = {{"metadata", {{"total_size", data_.v}}}, {"weight_map", std::move(weight_map)}};
  return DumpJson(index, 2) + "\n";
}

}  // namespace temper
