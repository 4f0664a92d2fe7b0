#include "checkpoint/checkpoint_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_staging.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/rank_fragments.h"
#include "checkpoint/transposed_windows.h"
#include "format/checksum.h"
#include "format/safetensors_writer.h"
#include "format/transpose.h"

namespace temper {
namespace {

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Tensors go out in pieces: long ones, as each costs the disk's driver the processor's time (WriteMode::kDirect), but
// short enough that a caller that begins to wait for the views is served soon.
constexpr size_t kPiece = 4 << 20;

// An entry of the manifest's two lists, without names and checksums. Generous: it is an estimate of free space.
constexpr int64_t kManifestBytesPerTensor = 512;

// The tensors of each file, by their names there: the bytes do not depend on the order in which they were given.
using FileContents = std::map<std::string, std::vector<const CheckpointTensor*>>;

FileContents ByFile(const CheckpointContents& contents) {
  FileContents files;
  for (const CheckpointTensor& t : contents.tensors) files[t.file].push_back(&t);
  for (auto& [file, tensors] : files) {
    std::sort(tensors.begin(), tensors.end(), [](auto* a, auto* b) { return a->stored_as < b->stored_as; });
  }
  return files;
}

std::vector<TensorDeclaration> SlicesIn(const std::vector<const CheckpointTensor*>& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const CheckpointTensor* t : tensors) declared.push_back({t->stored_as, t->slice()});
  return declared;
}

// Each once, also where a rank has several slices of it.
std::vector<TensorDeclaration> WholesIn(const std::vector<const CheckpointTensor*>& tensors) {
  std::map<std::string, TensorType> wholes;
  for (const CheckpointTensor* t : tensors) wholes.emplace(t->name, t->whole());
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, type] : wholes) declared.push_back({name, type});
  return declared;
}

Result<FileDigest> WriteText(Env& env, const std::string& path, std::string_view text) {
  TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForWrite(path));
  TEMPER_RETURN_IF_ERROR(file->Append(text));
  TEMPER_RETURN_IF_ERROR(file->Sync());
  TEMPER_RETURN_IF_ERROR(file->Close());
  return FileDigest{{static_cast<int64_t>(text.size())}, ChecksumHex(std::as_bytes(std::span(text)))};
}

// One save, run by the writer's thread.
class Save {
 public:
  // May be set while the save runs: `cancelled`, other ranks are not waited for any longer; `hurry`, somebody waits for
  // the views.
  Save(Env& env, const CheckpointWriter::Options& options, const CheckpointContents& contents,
       const std::atomic<bool>& cancelled, const std::atomic<bool>& hurry)
      : env_(env),
        options_(options),
        contents_(contents),
        cancelled_(cancelled),
        hurry_(hurry),
        final_(CheckpointFolder(options.output_dir, contents.state.step)),
        staging_(final_ + std::string(kStagingSuffix)) {
    manifest_.kind = contents.kind;
    manifest_.optimizer = contents.optimizer;
    manifest_.state = contents.state;
    manifest_.identity = contents.identity;
    manifest_.seconds = contents.seconds;
  }

  bool alone() const { return options_.ranks == 1; }
  const std::string& staging() const { return staging_; }

  Status MakeStaging() {
    TEMPER_RETURN_IF_ERROR(env_.RemoveTree(staging_));
    return env_.CreateFolders(staging_);
  }

  // `read` is called when the views are no longer needed.
  Status Run(const std::function<void()>& read) {
    Status status = Write(read);
    writers_.clear();
    // Best effort: nothing reads it. Where other ranks are still writing into it, it goes with the writer.
    if (!status.ok() && alone()) (void)env_.RemoveTree(staging_);
    return status.WithContext(fmt::format("{} could not be saved; earlier checkpoints are untouched", final_));
  }

 private:
  Status Write(const std::function<void()>& read) {
    if (alone()) TEMPER_RETURN_IF_ERROR(MakeStaging());
    const FileContents files = ByFile(contents_);
    for (const auto& [file, tensors] : files) TEMPER_RETURN_IF_ERROR(StreamTensors(file, tensors));
    read();
    for (SafetensorsWriter& writer : writers_) TEMPER_RETURN_IF_ERROR(writer.Finish());
    if (options_.rank > 0) {
      return PublishFragment(env_, staging_, options_.rank, {manifest_.files, manifest_.tensors});
    }
    if (!alone()) TEMPER_RETURN_IF_ERROR(AddOtherRanks());
    TEMPER_RETURN_IF_ERROR(WriteOtherFiles());
    TEMPER_RETURN_IF_ERROR(WriteManifest());
    TEMPER_RETURN_IF_ERROR(Commit());
    if (options_.saved) options_.saved(final_, contents_.state.step);
    if (options_.save_total_limit) {
      const Status rotated = RotateCheckpoints(env_, options_.output_dir, *options_.save_total_limit);
      if (!rotated.ok()) LogWarning("old checkpoints could not be deleted: " + rotated.message());
    }
    return OkStatus();
  }

  Status StreamTensors(const std::string& name, const std::vector<const CheckpointTensor*>& tensors) {
    const std::string file = !alone() && tensors.front()->joined ? PartFile(name, options_.rank) : name;
    TEMPER_ASSIGN_OR_RETURN(SafetensorsWriter created,
                            SafetensorsWriter::Create(env_, JoinPath(staging_, file), SlicesIn(tensors),
                                                      SafetensorsWriter::DefaultMetadata(), WriteMode::kDirect));
    writers_.push_back(std::move(created));
    SafetensorsWriter& writer = writers_.back();
    HostWindow window;
    std::map<std::string_view, const CheckpointTensor*> by_name;
    for (const CheckpointTensor* t : tensors) by_name[t->stored_as] = t;
    for (const StoredTensor& stored : writer.order()) {
      const CheckpointTensor& t = *by_name.at(stored.name);
      Checksum checksum;
      const auto append = [&](std::span<const std::byte> rest) -> Status {
        while (!rest.empty()) {
          const auto piece = rest.first(std::min(rest.size(), kPiece));
          checksum.Update(piece);
          if (hurry_) writer.Hurry();
          TEMPER_RETURN_IF_ERROR(writer.Append(stored.name, piece));
          rest = rest.subspan(piece.size());
        }
        return OkStatus();
      };
      std::vector<DevicePart> parts = {PartOf({t.part, t.stream})};
      for (const CheckpointTensor::Rows& rows : t.more) parts.push_back(PartOf(rows));
      if (t.transposed) {
        TEMPER_RETURN_IF_ERROR(ReadTransposed(parts, append));
      } else {
        for (const DevicePart& part : parts) TEMPER_RETURN_IF_ERROR(window.Read(part, append));
      }
      AddSlice(t, {file, t.stored_as, t.begin(), t.slice().shape, checksum.Hex()});
    }
    manifest_.files.push_back(TensorFileEntry(file, writer));
    return OkStatus();
  }

  DevicePart PartOf(const CheckpointTensor::Rows& rows) const {
    return {rows.part, rows.stream != nullptr ? *rows.stream : *options_.stream};
  }

  void AddSlice(const CheckpointTensor& t, Manifest::Slice slice) {
    const auto same = [&](const Manifest::Tensor& tensor) { return tensor.name == t.name; };
    // Slices of a tensor are stored one after another.
    const auto it = std::find_if(manifest_.tensors.rbegin(), manifest_.tensors.rend(), same);
    if (it == manifest_.tensors.rend()) {
      manifest_.tensors.push_back({t.name, t.whole(), {std::move(slice)}, t.kind});
    } else {
      it->slices.push_back(std::move(slice));
    }
  }

  Status AddOtherRanks() {
    writers_.clear();
    TEMPER_ASSIGN_OR_RETURN(const auto fragments,
                            AwaitFragments(env_, staging_, options_.ranks, options_.patience, cancelled_));
    TEMPER_RETURN_IF_ERROR(AddFragments(fragments, staging_, &manifest_));
    TEMPER_RETURN_IF_ERROR(JoinParts(env_, staging_, &manifest_));
    return RemoveFragments(env_, staging_);
  }

  Status WriteOtherFiles() {
    for (const auto& [name, text] : contents_.texts) {
      TEMPER_RETURN_IF_ERROR(CreateFolderFor(env_, staging_, name));
      TEMPER_ASSIGN_OR_RETURN(const FileDigest d, WriteText(env_, JoinPath(staging_, name), text));
      manifest_.files.push_back({name, d.bytes, d.checksum});
    }
    for (const auto& [name, from] : contents_.copies) {
      TEMPER_RETURN_IF_ERROR(CreateFolderFor(env_, staging_, name));
      TEMPER_ASSIGN_OR_RETURN(const FileDigest d, CopyFileDurably(env_, from, JoinPath(staging_, name)));
      manifest_.files.push_back({name, d.bytes, d.checksum});
    }
    const std::string clock = fmt::format("{{\"seconds\": {}}}\n", contents_.seconds);
    return WriteText(env_, JoinPath(staging_, kClockFile), clock).status();
  }

  Status WriteManifest() {
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(manifest_.files.begin(), manifest_.files.end(), by_name);
    std::sort(manifest_.tensors.begin(), manifest_.tensors.end(), by_name);
    const auto written = WriteText(env_, JoinPath(staging_, kManifestFile), FormatManifest(manifest_));
    TEMPER_RETURN_IF_ERROR(written.status());
    if (const std::string more = JoinPath(staging_, kCompanionFolder); env_.IsFolder(more)) {
      TEMPER_RETURN_IF_ERROR(env_.SyncFolder(more));
    }
    return env_.SyncFolder(staging_);
  }

  // From the first rename on a crash is repaired by the next start (PrepareOutputFolder), which finds all of the new
  // one.
  Status Commit() {
    const std::string retired = final_ + std::string(kRetiredSuffix);
    const bool replaces = env_.IsFolder(final_);
    if (replaces) {
      TEMPER_RETURN_IF_ERROR(env_.RemoveTree(retired));
      TEMPER_RETURN_IF_ERROR(env_.Rename(final_, retired));
    }
    if (Status renamed = env_.Rename(staging_, final_); !renamed.ok()) {
      if (replaces) (void)env_.Rename(retired, final_);
      return renamed;
    }
    TEMPER_RETURN_IF_ERROR(env_.SyncFolder(options_.output_dir));
    return replaces ? env_.RemoveTree(retired) : OkStatus();
  }

  Env& env_;
  const CheckpointWriter::Options& options_;
  const CheckpointContents& contents_;
  const std::atomic<bool>& cancelled_;
  const std::atomic<bool>& hurry_;
  const std::string final_, staging_;
  Manifest manifest_;
  std::vector<SafetensorsWriter> writers_;
};

void CheckContents(const CheckpointContents& contents) {
  const auto has_memory = [](const PartView& part) {
    return part.view.data != nullptr || part.view.type.bytes().v == 0;
  };
  for (const CheckpointTensor& t : contents.tensors) {
    TEMPER_CHECK(has_memory(t.part)) << t.name << " has no memory";
    for (const auto& rows : t.more) TEMPER_CHECK(has_memory(rows.part)) << t.name << " has rows without memory";
    TEMPER_CHECK(!t.file.empty() && t.file.find('/') == t.file.npos) << t.name << " is to go into '" << t.file << "'";
  }
}

}  // namespace

TensorType CheckpointTensor::whole() const {
  return {part.view.type.dtype, transposed ? Transposed(part.global) : part.global};
}

TensorType CheckpointTensor::slice() const {
  TensorType type = part.view.type;
  if (together.rank() > 0) {
    type.shape = together;
  } else {
    for (const Rows& rows : more) type.shape.set_dim(0, type.shape[0] + rows.part.view.type.shape[0]);
  }
  if (transposed) type.shape = Transposed(type.shape);
  return type;
}

Shape CheckpointTensor::begin() const {
  return transposed ? Transposed(part.begin) : part.begin;
}

Result<Bytes> CheckpointBytes(Env& env, const CheckpointContents& contents) {
  Bytes sum = KiB(64) + Bytes{kManifestBytesPerTensor} * static_cast<int64_t>(contents.tensors.size());
  for (const auto& [file, tensors] : ByFile(contents)) {
    TEMPER_ASSIGN_OR_RETURN(
        const Bytes size,
        SafetensorsWriter::FileSize(WholesIn(tensors), SafetensorsWriter::DefaultMetadata(), WriteMode::kDirect));
    sum += size;
  }
  for (const auto& text : contents.texts) sum += Bytes{static_cast<int64_t>(text.text.size())};
  for (const auto& copy : contents.copies) {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(copy.from));
    sum += file->size();
  }
  return sum;
}

class CheckpointWriter::Impl {
 public:
  Impl(Env& env, Options options) : env_(env), options_(std::move(options)) {
    TEMPER_CHECK(!options_.save_total_limit || *options_.save_total_limit >= 1) << "save_total_limit below 1";
    TEMPER_CHECK(options_.rank >= 0 && options_.rank < options_.ranks) << options_.rank << " of " << options_.ranks;
  }
  ~Impl() {
    cancelled_ = true;
    if (thread_.joinable()) thread_.join();
    // What is left of a save that failed. Ranks that still write there fail, too.
    if (options_.ranks > 1 && first() && !error_.ok()) (void)env_.RemoveTree(MakeSave().staging());
  }

  Status Start(CheckpointContents contents) {
    TEMPER_CHECK(options_.ranks == 1) << "several ranks meet between Prepare and Launch";
    TEMPER_RETURN_IF_ERROR(Prepare(std::move(contents)));
    Launch();
    return OkStatus();
  }

  Status Prepare(CheckpointContents contents) {
    TEMPER_RETURN_IF_ERROR(Finish());
    CheckContents(contents);
    contents_ = std::move(contents);
    if (!first()) return OkStatus();
    Status ready = CheckRoom();
    // No rank may find the folder of a save that was interrupted.
    if (ready.ok() && options_.ranks > 1) ready = MakeSave().MakeStaging();
    if (ready.ok()) return OkStatus();
    error_ = ready.WithContext(
        fmt::format("step {} could not be saved; earlier checkpoints are untouched", contents_.state.step));
    return error_;
  }

  void Launch() {
    read_ = ended_ = hurry_ = false;
    try {
      thread_ = StartThread([this] { Work(); });
    } catch (const std::system_error&) {
      // The caller cannot write for several ranks: it waits for the others, and has to notice one that died.
      if (options_.ranks > 1) throw;
      Work();
    }
  }

  Status WaitUntilRead() {
    hurry_ = true;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return read_; });
    return error_;
  }

  Status Finish() {
    if (thread_.joinable()) thread_.join();
    return error_;
  }

  bool FinishWithin(Seconds patience) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, std::chrono::duration<double>(patience.v), [&] { return ended_; })) return false;
    }
    (void)Finish();
    return true;
  }

  const Timing& last_timing() const {
    TEMPER_CHECK(!thread_.joinable()) << "a save is in progress";
    return timing_;
  }

 private:
  bool first() const { return options_.rank == 0; }
  Save MakeSave() const { return Save(env_, options_, contents_, cancelled_, hurry_); }

  Status CheckRoom() {
    TEMPER_ASSIGN_OR_RETURN(timing_.bytes, CheckpointBytes(env_, contents_));
    return CheckFreeSpace(env_, options_.output_dir, timing_.bytes);
  }

  void Work() {
    const auto begin = Clock::now();
    const auto set_read = [&](Status error) {
      const std::lock_guard lock(mutex_);
      if (!read_) timing_.until_read = SecondsSince(begin);
      read_ = true;
      if (!error.ok()) error_ = std::move(error);
      changed_.notify_all();
    };
    Status status = MakeSave().Run([&] { set_read(OkStatus()); });
    timing_.until_durable = SecondsSince(begin);
    set_read(std::move(status));
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  Env& env_;
  const Options options_;
  CheckpointContents contents_;  // of the save in progress; the thread's while it runs
  std::thread thread_;
  Timing timing_;
  std::atomic<bool> cancelled_ = false;

  std::atomic<bool> hurry_ = false;  // a caller waits until the views are read
  std::mutex mutex_;
  std::condition_variable changed_;
  bool read_ = true, ended_ = true;  // guarded by mutex_
  Status error_;                     // guarded by mutex_ while the thread runs; sticky
};

CheckpointWriter::CheckpointWriter(Env& env, Options options)
    : impl_(std::make_unique<Impl>(env, std::move(options))) {}
CheckpointWriter::~CheckpointWriter() = default;
Status CheckpointWriter::Start(CheckpointContents contents) {
  return impl_->Start(std::move(contents));
}
Status CheckpointWriter::Prepare(CheckpointContents contents) {
  return impl_->Prepare(std::move(contents));
}
void CheckpointWriter::Launch() {
  impl_->Launch();
}
Status CheckpointWriter::WaitUntilRead() {
  return impl_->WaitUntilRead();
}
Status CheckpointWriter::Finish() {
  return impl_->Finish();
}
bool CheckpointWriter::FinishWithin(Seconds patience) {
  return impl_->FinishWithin(patience);
}
const CheckpointWriter::Timing& CheckpointWriter::last_timing() const {
  return impl_->last_timing();
}

}  // namespace temper
