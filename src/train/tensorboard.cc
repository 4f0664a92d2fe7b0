#include "train/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <ctime>
#include <limits>

#include "base/host_name.h"
#include "train/crc32c.h"

namespace temper {
namespace {

// Field numbers and wire types of tensorflow's event.proto and summary.proto.
constexpr char kWallTime = 0x09;     // Event.wall_time = 1, double
constexpr char kStep = 0x10;         // Event.step = 2, varint
constexpr char kFileVersion = 0x1A;  // Event.file_version = 3, string
constexpr char kSummary = 0x2A;      // Event.summary = 5, message
constexpr char kSessionLog = 0x3A;   // Event.session_log = 7, message; 08 01 in it: SessionLog.status = START
constexpr char kValue = 0x0A;        // Summary.value = 1, message
constexpr char kTag = 0x0A;          // Summary.Value.tag = 1, string
constexpr char kSimpleValue = 0x15;  // Summary.Value.simple_value = 2, float

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

template <class T>
std::string Raw(T v) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(v);
  return {bytes.begin(), bytes.end()};
}

std::string Varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}

std::string Field(char key, std::string_view payload) {
  std::string out(1, key);
  out += Varint(payload.size());
  return out.append(payload);
}

std::string EventHead(double wall_time, int64_t step) {
  std::string out = kWallTime + Raw(wall_time);
  // Protobuf leaves out a field of value 0.
  if (step != 0) out += kStep + Varint(static_cast<uint64_t>(step));
  return out;
}

// TensorFlow's masking, so that a checksum of data that holds checksums is not trivial.
std::string MaskedChecksum(std::string_view data) {
  const uint32_t crc = Crc32c(data);
  return Raw<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

// The time in "events.out.tfevents.TIME.HOST.PID.0", or nullopt for other names.
std::optional<int64_t> TimeOfEventFile(std::string_view name) {
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t time = 0;
  if (std::from_chars(name.data(), name.data() + name.size(), time).ec != std::errc()) return std::nullopt;
  return time;
}

// The newest event file below `runs`. Folder names do not tell: they have no year and sort alphabetically.
std::optional<std::string> NewestEventFile(Env& env, const std::string& runs) {
  std::optional<std::string> newest;
  int64_t newest_time = std::numeric_limits<int64_t>::min();
  const Result<std::vector<std::string>> folders = env.List(runs);
  if (!folders.ok()) return newest;
  for (const std::string& name : *folders) {
    const std::string folder = JoinPath(runs, name);
    if (!env.IsFolder(folder)) continue;
    const Result<std::vector<std::string>> files = env.List(folder);
    if (!files.ok()) continue;
    for (const std::string& file : *files) {
      const std::optional<int64_t> time = TimeOfEventFile(file);
      if (time && *time >= newest_time) {
        newest_time = *time;
        newest = JoinPath(folder, file);
      }
    }
  }
  return newest;
}

template <class T>
T ReadRaw(std::string_view bytes) {
  std::array<char, sizeof(T)> raw;
  std::copy_n(bytes.begin(), raw.size(), raw.begin());
  return std::bit_cast<T>(raw);
}

// How many bytes of `file` are whole records. TensorBoard reads no further than the first that is not. `torn`: the rest
// is a part of one, as a killed process leaves it; otherwise it is damaged, and whole records may follow.
size_t WholeRecords(std::string_view file, bool* torn) {
  constexpr size_t kLength = 8, kSum = 4;
  size_t at = 0;
  while (file.size() - at >= kLength + 2 * kSum) {
    const std::string_view length = file.substr(at, kLength);
    const auto size = ReadRaw<uint64_t>(length);
    *torn = file.substr(at + kLength, kSum) == MaskedChecksum(length);
    if (!*torn || size > file.size() - at - kLength - 2 * kSum) return at;
    const std::string_view data = file.substr(at + kLength + kSum, static_cast<size_t>(size));
    *torn = at + kLength + 2 * kSum + data.size() == file.size();  // nothing readable is behind it
    if (file.substr(at + kLength + kSum + data.size(), kSum) != MaskedChecksum(data)) return at;
    at += kLength + 2 * kSum + data.size();
  }
  *torn = true;
  return at;
}

// Opens an event file to append after its last complete record; null if it has none or is damaged: it stays as it is.
Result<std::unique_ptr<WritableFile>> AppendTo(Env& env, const std::string& path, int64_t* size) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  bool torn = false;
  const size_t whole = WholeRecords(text, &torn);
  if (whole == 0 || !torn) return std::unique_ptr<WritableFile>();
  *size = static_cast<int64_t>(whole);
  if (whole < text.size()) TEMPER_RETURN_IF_ERROR(env.Truncate(path, *size));
  return env.OpenForWrite(path, WriteMode::kAppend);
}

std::string RunFolder(const std::string& runs, std::time_t seconds, const std::string& host) {
  std::tm local{};
  localtime_r(&seconds, &local);
  const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return JoinPath(runs, fmt::format("{}{:02}_{:02}-{:02}-{:02}_{}", months[local.tm_mon % 12], local.tm_mday,
                                    local.tm_hour, local.tm_min, local.tm_sec, host));
}

}  // namespace

std::string EventRecord(std::string_view data) {
  const std::string length = Raw<uint64_t>(data.size());
  std::string out = length + MaskedChecksum(length);
  out += data;
  return out + MaskedChecksum(data);
}

std::string VersionEvent(double wall_time) {
  return EventHead(wall_time, 0) + Field(kFileVersion, "brain.Event:2");
}

std::string ScalarEvent(double wall_time, int64_t step, std::string_view tag, float value) {
  const std::string scalar = Field(kTag, tag) + kSimpleValue + Raw(value);
  return EventHead(wall_time, step) + Field(kSummary, Field(kValue, scalar));
}

std::string SessionStartEvent(double wall_time, int64_t step) {
  return EventHead(wall_time, step) + Field(kSessionLog, std::string_view("\x08\x01", 2));
}

std::string TensorBoardTag(std::string_view name) {
  for (const std::string_view group : {"eval", "test"}) {
    if (name.size() > group.size() && name.starts_with(group) && name[group.size()] == '_') {
      return fmt::format("{}/{}", group, name.substr(group.size() + 1));
    }
  }
  return fmt::format("train/{}", name);
}

TensorBoardWriter::TensorBoardWriter(Env& env, std::string path, std::unique_ptr<WritableFile> file, int64_t size)
    : env_(env), path_(std::move(path)), file_(std::move(file)), size_(size) {}

Result<std::unique_ptr<TensorBoardWriter>> TensorBoardWriter::Create(Env& env, const std::string& output_dir,
                                                                     double start, std::optional<int64_t> resume_step) {
  const auto seconds = static_cast<std::time_t>(start);
  const std::string host = HostName();
  const std::string runs = JoinPath(output_dir, "runs");
  std::string path, head;
  std::unique_ptr<WritableFile> file;
  int64_t size = 0;
  if (resume_step) {
    head = EventRecord(SessionStartEvent(start, *resume_step + 1));
    if (const auto newest = NewestEventFile(env, runs)) {
      path = *newest;
      TEMPER_ASSIGN_OR_RETURN(file, AppendTo(env, path, &size));
    }
  }
  if (!file) {
    const std::string folder = path.empty() ? RunFolder(runs, seconds, host) : FolderOf(path);
    TEMPER_RETURN_IF_ERROR(env.CreateFolders(folder));
    path = JoinPath(folder, fmt::format("events.out.tfevents.{}.{}.{}.0", int64_t{seconds}, host, getpid()));
    TEMPER_ASSIGN_OR_RETURN(file, env.OpenForWrite(path, WriteMode::kAppend));
    head.insert(0, EventRecord(VersionEvent(start)));
  }
  std::unique_ptr<TensorBoardWriter> writer(new TensorBoardWriter(env, path, std::move(file), size));
  TEMPER_RETURN_IF_ERROR(writer->Append(head));
  return writer;
}

Status TensorBoardWriter::Append(std::string_view records) {
  if (torn_) TEMPER_RETURN_IF_ERROR(env_.Truncate(path_, size_));
  torn_ = true;
  TEMPER_RETURN_IF_ERROR(file_->Append(records));
  torn_ = false;
  size_ += static_cast<int64_t>(records.size());
  return OkStatus();
}

Status TensorBoardWriter::AddScalar(std::string_view name, int64_t step, double value, double wall_time) {
  return Append(EventRecord(ScalarEvent(wall_time, step, TensorBoardTag(name), static_cast<float>(value))));
}

}  // namespace temper
