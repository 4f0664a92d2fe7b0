#include "train/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <ctime>
#include <limits>

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

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
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

// The folder of `runs` with the newest event file. Folder names do not tell: they have no year and sort alphabetically.
std::optional<std::string> NewestRun(Env& env, const std::string& runs) {
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
        newest = folder;
      }
    }
  }
  return newest;
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

TensorBoardWriter::TensorBoardWriter(std::string path, std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), file_(std::move(file)) {}

Result<std::unique_ptr<TensorBoardWriter>> TensorBoardWriter::Create(Env& env, const std::string& output_dir,
                                                                     double start, std::optional<int64_t> resume_step) {
  const auto seconds = static_cast<std::time_t>(start);
  const std::string host = HostName();
  const std::string runs = JoinPath(output_dir, "runs");
  std::optional<std::string> resumed;
  if (resume_step) resumed = NewestRun(env, runs);
  const std::string folder = resumed ? *resumed : RunFolder(runs, seconds, host);
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(folder));
  const std::string path =
      JoinPath(folder, fmt::format("events.out.tfevents.{}.{}.{}.0", int64_t{seconds}, host, getpid()));
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForWrite(path));
  std::string head = EventRecord(VersionEvent(start));
  if (resume_step) head += EventRecord(SessionStartEvent(start, *resume_step + 1));
  TEMPER_RETURN_IF_ERROR(file->Append(std::string_view(head)));
  return std::unique_ptr<TensorBoardWriter>(new TensorBoardWriter(path, std::move(file)));
}

Status TensorBoardWriter::AddScalar(std::string_view name, int64_t step, double value, double wall_time) {
  const std::string record = EventRecord(ScalarEvent(wall_time, step, TensorBoardTag(name), static_cast<float>(value)));
  return file_->Append(std::string_view(record));
}

}  // namespace temper
