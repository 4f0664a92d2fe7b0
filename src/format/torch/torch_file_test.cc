// Files that lie: none of them makes TorchFile run, read or reserve what is not its own.
#include "format/torch/torch_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <utility>

#include "base/project_folder_for_test.h"
#include "format/memory_env_for_test.h"
#include "format/open_tensor_file.h"

namespace temper::torch_file_test {
namespace {

using namespace std::string_literals;

template <class T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Opcodes of pickles.
std::string TextOp(const std::string& text) {
  return "X" + Raw(static_cast<uint32_t>(text.size())) + text;
}
std::string IntOp(int64_t n) {
  return "\x8a\x08" + Raw(n);
}
std::string GlobalOp(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string TupleOp(const std::string& items) {
  return "(" + items + "t";
}
std::string NumbersOp(const std::vector<int64_t>& numbers) {
  std::string items;
  for (const int64_t n : numbers) items += IntOp(n);
  return TupleOp(items);
}
std::string StorageOp(const std::string& key, int64_t elements, const std::string& type = "FloatStorage") {
  return TupleOp(TextOp("storage") + GlobalOp("torch", type) + TextOp(key) + TextOp("cpu") + IntOp(elements)) + "Q";
}
std::string TensorOp(const std::string& storage, int64_t offset, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& strides) {
  return GlobalOp("torch._utils", "_rebuild_tensor_v2") +
         TupleOp(storage + IntOp(offset) + NumbersOp(dims) + NumbersOp(strides) + "\x89" +
                 GlobalOp("collections", "OrderedDict") + ")R") +
         "R";
}
std::string PickleOf(const std::string& opcodes) {
  return "\x80\x02" + opcodes + ".";
}
std::string DictOp(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string opcodes = "}(";
  for (const auto& [name, value] : items) opcodes += TextOp(name) + value;
  return opcodes + "u";
}

// What an archive says of an entry and is not so.
struct Lie {
  std::string name;  // of the entry
  uint16_t method = 0, flags = 0;
  int64_t more_bytes = 0, header_moved = 0;
  uint32_t crc_changed = 0;
};

class Archive {
 public:
  void Add(const std::string& name, const std::string& data, const Lie& lie = {}) {
    const auto crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
    const auto size = static_cast<uint32_t>(static_cast<int64_t>(data.size()) + lie.more_bytes);
    const auto name_size = static_cast<uint16_t>(name.size());
    const auto header = static_cast<uint32_t>(static_cast<int64_t>(bytes_.size()) + lie.header_moved);
    const std::string common = Raw(uint16_t{0}) + Raw(lie.flags) + Raw(lie.method) + Raw(uint32_t{0}) +
                               Raw(crc ^ lie.crc_changed) + Raw(size) + Raw(size) + Raw(name_size) + Raw(uint16_t{0});
    bytes_ += "PK\x03\x04" + common + name + data;
    list_ += "PK\x01\x02" + Raw(uint16_t{0}) + common + Raw(uint16_t{0}) + Raw(uint16_t{0}) + Raw(uint16_t{0}) +
             Raw(uint32_t{0}) + Raw(header) + name;
    ++entries_;
  }

  std::string Finish(int counted = -1) const {
    const auto n = static_cast<uint16_t>(counted < 0 ? entries_ : counted);
    return bytes_ + list_ + "PK\x05\x06" + std::string(4, '\0') + Raw(n) + Raw(n) +
           Raw(static_cast<uint32_t>(list_.size())) + Raw(static_cast<uint32_t>(bytes_.size())) + std::string(2, '\0');
  }
  // With the numbers in 64 bits, as of files above 4 GB.
  std::string Finish64(uint64_t end_moved = 0) const {
    const std::string end64 = "PK\x06\x06" + Raw(uint64_t{44}) + std::string(12, '\0') + Raw(uint64_t{entries_}) +
                              Raw(uint64_t{entries_}) + Raw(uint64_t{list_.size()}) + Raw(uint64_t{bytes_.size()});
    return bytes_ + list_ + end64 + "PK\x06\x07" + Raw(uint32_t{0}) + Raw(bytes_.size() + list_.size() + end_moved) +
           Raw(uint32_t{1}) + "PK\x05\x06" + std::string(4, '\0') + "\xff\xff\xff\xff" + "\xff\xff\xff\xff" +
           "\xff\xff\xff\xff" + std::string(2, '\0');
  }

 private:
  std::string bytes_, list_;
  uint16_t entries_ = 0;
};

const std::string kNumbers = Raw(1.0F) + Raw(2.0F) + Raw(3.0F) + Raw(4.0F) + Raw(5.0F) + Raw(6.0F);

std::string FileOf(const std::string& pickle, const std::string& data = kNumbers, const Lie& lie = {}) {
  Archive archive;
  archive.Add("m/data.pkl", pickle, lie.name == "pickle" ? lie : Lie{});
  archive.Add("m/data/0", data, lie.name == "data" ? lie : Lie{});
  return archive.Finish();
}
const std::string kPickle = PickleOf(DictOp({{"w", TensorOp(StorageOp("0", 6), 0, {2, 3}, {3, 1})}}));

Result<TorchFile> OpenBytes(std::string bytes) {
  MemoryEnv env;
  env.files["f"] = std::move(bytes);
  return TorchFile::Open(env, "f");
}

void ExpectRefused(const std::string& bytes, const std::vector<std::string>& fragments,
                   StatusCode code = StatusCode::kCorrupt) {
  const auto file = OpenBytes(bytes);
  ASSERT_FALSE(file.ok());
  const std::string message = file.status().message();
  EXPECT_EQ(file.status().code(), code) << message;
  EXPECT_TRUE(message.starts_with("f")) << message;
  for (const std::string& fragment : fragments) EXPECT_NE(message.find(fragment), message.npos) << message;
}
void ExpectPickleRefused(const std::string& opcodes, const std::vector<std::string>& fragments,
                         StatusCode code = StatusCode::kCorrupt) {
  ExpectRefused(FileOf(PickleOf(opcodes)), fragments, code);
}

TEST(TorchFile, ReadsATensorOfAnArchive) {
  for (const std::string& bytes : {FileOf(kPickle), [] {
                                     Archive archive;
                                     archive.Add("m/data.pkl", kPickle);
                                     archive.Add("m/data/0", kNumbers);
                                     return archive.Finish64();
                                   }()}) {
    const auto file = OpenBytes(bytes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::vector<float> x(4);
    ASSERT_TRUE(file->ReadElementsAs("w", 2, DType::kF32, std::as_writable_bytes(std::span(x))).ok());
    EXPECT_EQ(x, (std::vector<float>{3, 4, 5, 6}));
  }
}

// As Python 2 made it: OrderedDict([["w", tensor]]); of two values of a key the last counts.
TEST(TorchFile, ReadsADictThatIsMadeOfPairs) {
  const auto pair = [](const std::string& name, const std::string& value) { return TupleOp(TextOp(name) + value); };
  const std::string tensor = TensorOp(StorageOp("0", 6), 0, {6}, {1});
  const auto file = OpenBytes(FileOf(PickleOf(
      GlobalOp("collections", "OrderedDict") +
      TupleOp("](" + pair("gone", tensor) + pair("w", "N") + pair("w", tensor) + pair("gone", "N") + "e") + "R")));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 1u);
  EXPECT_EQ(file->tensors().front().name, "w");
}

TEST(TorchFile, RunsAndKnowsNothingBesideTensors) {
  const std::pair<std::string, std::string> kNames[] = {{"os", "system"},
                                                        {"builtins", "eval"},
                                                        {"posix", "system"},
                                                        {"torch", "load"},
                                                        {"torch", "Storage"},
                                                        {"numpy", "ndarray"},
                                                        {"torch._utils", "_import"},
                                                        {"argparse", "Namespace"},
                                                        {"", ""},
                                                        {"builtins", "getattr"}};
  for (const auto& [module, name] : kNames) {
    const std::string call = GlobalOp(module, name) + TupleOp(TextOp("touch x")) + "R";
    ExpectPickleRefused(call, {"refers to '" + module + "." + name + "'", "torch.save(model.state_dict()"},
                        StatusCode::kUnsupported);
    // In the form of newer protocols, and where nobody looks for it.
    ExpectPickleRefused(DictOp({{"w", TextOp(module) + TextOp(name) + "\x93"}}), {"refers to"},
                        StatusCode::kUnsupported);
  }
  ExpectPickleRefused("i" + std::string("os\nsystem\n"), {"opcode 'i' of protocol 0"}, StatusCode::kUnsupported);
  ExpectPickleRefused(std::string("\x82\x01"), {"opcode 0x82"});  // of copyreg's registry
}

TEST(TorchFile, RefusesPicklesThatNoPicklerWrites) {
  ExpectPickleRefused("", {"takes from an empty stack"});
  ExpectPickleRefused("NN", {"leaves values on its stack"});
  ExpectPickleRefused("(N", {"leaves values"});
  ExpectPickleRefused("t", {"mark that is not there"});
  ExpectPickleRefused("N\x86", {"empty stack"});
  ExpectPickleRefused("N(\x85t", {"empty stack"});  // does not reach below the mark
  ExpectPickleRefused("h\x07", {"recalls what it has not memorised"});
  ExpectPickleRefused("NNa", {"adds items to what holds none"});
  ExpectPickleRefused("}(Nu", {"a key without a value"});
  ExpectPickleRefused("NNR", {"calls what is no name"});
  ExpectPickleRefused(GlobalOp("torch", "device") + "NR", {"calls what is no name, or with what is no tuple"});
  ExpectPickleRefused("N}b", {"gives attributes to what has none"});
  const std::string dict = GlobalOp("collections", "OrderedDict");
  ExpectPickleRefused(dict + TupleOp("]]") + "R", {"makes a dict of several values"});
  ExpectPickleRefused(dict + TupleOp("N") + "R", {"makes a dict of what is no list"});
  ExpectPickleRefused(dict + TupleOp("](" + TupleOp("NNN") + "e") + "R", {"makes a dict of what are no pairs"});
  ExpectPickleRefused("NN\x93", {"a name that is not text"});
  ExpectPickleRefused("X\xff\xff\xff\xffw", {"ends inside an opcode"});
  ExpectPickleRefused("\x8e\xff\xff\xff\xff\xff\xff\xff\xffw", {"ends inside an opcode"});
  ExpectPickleRefused("ctorch", {"a name that does not end"});
  ExpectPickleRefused("c" + std::string(2000, 'a'), {"a name that does not end"});
  ExpectPickleRefused("\x80\x09N", {"protocol 9"}, StatusCode::kUnsupported);
  ExpectRefused(FileOf("\x80\x02N"), {"ends without its last opcode"});
  ExpectRefused(FileOf(""), {"does not begin with a protocol"});
}

TEST(TorchFile, RefusesWhatIsNoStateDict) {
  const auto kUnsupported = StatusCode::kUnsupported;
  ExpectPickleRefused("}", {"an empty dict, not a state dict"}, kUnsupported);
  ExpectPickleRefused("]", {"something else than a dict"}, kUnsupported);
  ExpectPickleRefused(TensorOp(StorageOp("0", 6), 0, {6}, {1}), {"one tensor"}, kUnsupported);
  ExpectPickleRefused(DictOp({{"state", "}"}, {"param_groups", "]"}}), {"a dict of 'state', 'param_groups', not"},
                      kUnsupported);
  // Containers that hold themselves.
  ExpectPickleRefused("]q\0h\0a"s, {"something else than a dict"}, kUnsupported);
  ExpectPickleRefused("}q\0"s + TextOp("model") + "h\0s"s, {"a dict of 'model', not"}, kUnsupported);
  ExpectPickleRefused("}q\0"s + TextOp("x") + "h\0s"s, {"a dict of 'x', not"}, kUnsupported);
}

TEST(TorchFile, RefusesTensorsThatContradictThemselves) {
  const auto expect = [](const std::string& tensor, const std::string& fragment,
                         StatusCode code = StatusCode::kCorrupt) {
    ExpectPickleRefused(DictOp({{"w", tensor}}), {"tensor 'w' " + fragment}, code);
  };
  const std::string storage = StorageOp("0", 6);
  constexpr int64_t kHuge = INT64_MAX;
  expect(TensorOp(storage, 1, {2, 3}, {3, 1}), "reaches to element 6 of a storage of 6");
  expect(TensorOp(storage, 0, {2, 3}, {4, 1}), "reaches to element 6 of a storage of 6");
  expect(TensorOp(storage, 6, {}, {}), "reaches to element 6");
  expect(TensorOp(storage, -1, {2}, {1}), "has damaged dims, strides or offset");
  expect(TensorOp(storage, 0, {-2}, {1}), "has damaged dims");
  expect(TensorOp(storage, 0, {2}, {-1}), "has damaged dims");
  expect(TensorOp(storage, 0, {2}, {1, 1}), "has damaged dims");
  expect(TensorOp(storage, 0, std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1)), "has damaged dims");
  expect(TensorOp(storage, 0, {kHuge, 2}, {0, 0}), "has more bytes than 64 bits can count");
  expect(TensorOp(storage, 0, {3}, {kHuge}), "has more bytes than 64 bits can count");
  expect(TensorOp(storage, kHuge, {3}, {1}), "has more bytes than 64 bits can count");
  expect(TensorOp(StorageOp("0", kHuge), 0, {3}, {1}), "has a storage of more bytes than");
  expect(TensorOp(StorageOp("0", -1), 0, {3}, {1}), "has a damaged storage");
  expect(TensorOp("N", 0, {3}, {1}), "has no storage");
  expect(TensorOp(TextOp("0") + "Q", 0, {3}, {1}), "has no storage");
  expect(TensorOp(TupleOp(TextOp("storage")) + "Q", 0, {3}, {1}), "has a damaged storage");
  expect(GlobalOp("torch._utils", "_rebuild_tensor_v2") + ")R", "has damaged dims");
  expect(GlobalOp("torch._utils", "_rebuild_parameter") + ")R", "is a parameter of no tensor");
  expect(GlobalOp("torch._tensor", "_rebuild_from_type_v2") + ")R", "is made in no known way");
  // A parameter of itself.
  expect(GlobalOp("torch._utils", "_rebuild_parameter") +
             TupleOp(GlobalOp("torch._utils", "_rebuild_parameter") + ")R") + "R",
         "is made in no known way");
  ExpectPickleRefused(DictOp({{"a", TensorOp(storage, 0, {6}, {1})}, {"b", TensorOp(StorageOp("0", 5), 0, {5}, {1})}}),
                      {"'b' shares a storage whose size another tensor says otherwise"});
  ExpectPickleRefused(DictOp({{"\xff", TensorOp(storage, 0, {6}, {1})}}), {"is not UTF-8"});
}

TEST(TorchFile, RefusesArchivesThatLie) {
  ExpectRefused(FileOf(kPickle, kNumbers.substr(4)), {"storage '0' should have 24 bytes but has 20"});
  ExpectRefused(FileOf(kPickle, kNumbers + kNumbers), {"storage '0' should have 24 bytes but has 48"});
  ExpectRefused(FileOf(PickleOf(DictOp({{"w", TensorOp(StorageOp("1", 6), 0, {6}, {1})}}))),
                {"storage '1' is missing"});
  ExpectRefused(FileOf(PickleOf(DictOp({{"w", TensorOp(StorageOp("../x", 6), 0, {6}, {1})}}))), {"is missing"});
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "data", .method = 8}),
                {"'m/data/0' is compressed or encrypted", "save the file again"}, StatusCode::kUnsupported);
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "pickle", .method = 8}), {"is compressed"},
                StatusCode::kUnsupported);
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "data", .flags = 1}), {"is compressed or encrypted"},
                StatusCode::kUnsupported);
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "pickle", .crc_changed = 1}), {"its CRC differs"});
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "data", .more_bytes = 1 << 20}), {"has a wrong size"});
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "data", .header_moved = -1}), {"does not have 'm/data/0' where"});
  ExpectRefused(FileOf(kPickle, kNumbers, {.name = "data", .header_moved = 1 << 20}), {"behind its end"});

  Archive twice;
  twice.Add("m/data.pkl", kPickle);
  twice.Add("m/data/0", kNumbers);
  ExpectRefused(twice.Finish(3), {"lists 2 entries but counts 3"});
  ExpectRefused(twice.Finish64(~uint64_t{0}), {"has no zip64 end"});
  ExpectRefused(twice.Finish64(~uint64_t{0} / 2), {"says that its end lies behind it"});
  twice.Add("m/data/0", kNumbers);
  ExpectRefused(twice.Finish(), {"has 'm/data/0' twice"});

  // An entry in another's bytes: both have their headers.
  Archive inner, outer;
  inner.Add("m/data/1", kNumbers);
  const std::string inside = inner.Finish().substr(0, 30 + 8 + kNumbers.size());
  outer.Add("m/data.pkl",
            PickleOf(DictOp({{"a", TensorOp(StorageOp("0", static_cast<int64_t>(inside.size()), "ByteStorage"), 0,
                                            {static_cast<int64_t>(inside.size())}, {1})},
                             {"b", TensorOp(StorageOp("1", 6), 0, {6}, {1})}})));
  outer.Add("m/data/0", inside);
  outer.Add("m/data/1", kNumbers, {.name = "", .header_moved = -static_cast<int64_t>(inside.size())});
  ExpectRefused(outer.Finish(), {"storages '0' and '1' overlap"});

  Archive other;
  other.Add("word/document.xml", "<a/>");
  ExpectRefused(other.Finish(), {"zip archive, but not one of torch.save"}, StatusCode::kUnsupported);
  Archive script;
  script.Add("m/data.pkl", kPickle);
  script.Add("m/constants.pkl", "");
  ExpectRefused(script.Finish(), {"TorchScript"}, StatusCode::kUnsupported);
  Archive big_endian;
  big_endian.Add("m/data.pkl", kPickle);
  big_endian.Add("m/byteorder", "big");
  ExpectRefused(big_endian.Finish(), {"big-endian"}, StatusCode::kUnsupported);
}

TEST(TorchFile, RefusesBombsBeforeTheyGrow) {
  const auto kUnsupported = StatusCode::kUnsupported;
  const std::string many = "more than 1000000 values";
  ExpectPickleRefused("(" + std::string(1'100'000, 'N') + "t", {many}, kUnsupported);
  ExpectPickleRefused("N" + std::string(1'100'000, '2'), {many}, kUnsupported);
  ExpectPickleRefused(std::string(1'100'000, '('), {many}, kUnsupported);
  ExpectPickleRefused(std::string(1'100'000, ']'), {many}, kUnsupported);
  // Items of lists, ten bytes for eight.
  std::string wide = "]";
  for (int i = 0; i < 300'000; ++i) wide += "(NNNNNNNNe";
  ExpectPickleRefused(wide, {many}, kUnsupported);
  // Memorised at any index.
  std::string memo = "N";
  for (uint32_t i = 0; i < 600'000; ++i) memo += "r" + Raw(i * 4'000'037u);
  ExpectPickleRefused(memo, {many}, kUnsupported);
  // Each tuple holds the one before twice: 2^60 values, if they were counted out.
  std::string laughs = "N";
  for (int i = 0; i < 60; ++i) laughs += "2\x86";
  ExpectPickleRefused(DictOp({{"x", laughs}}), {"a dict of 'x', not a state dict"}, kUnsupported);
  // One tensor of 64 dims under many names.
  std::string names = "}(";
  const std::string tensor =
      TensorOp(StorageOp("0", 6), 0, std::vector<int64_t>(64, 1), std::vector<int64_t>(64, 1)) + "q\0"s;
  for (int i = 0; i < 60'000; ++i) names += TextOp(std::to_string(i)) + (i == 0 ? tensor : "h\0"s);
  ExpectPickleRefused(names + "u", {"has more than 50000 tensors"}, kUnsupported);
  ExpectRefused(FileOf(std::string(TorchFile::kMostPickle + 1, 'N')), {"a pickle of 16777217 bytes"}, kUnsupported);
}

// As a download that broke, or a bad disk, leaves them.
TEST(TorchFile, SurvivesCutAndFlippedBytes) {
  for (const char* name : {"archive", "sequence"}) {
    SCOPED_TRACE(name);
    const auto whole = ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/tests/format/torch/" + name + ".bin");
    ASSERT_TRUE(whole.ok());
    for (size_t n = TorchFile::kMagicBytes; n < whole->size(); n += n < 200 ? 1 : 17) {
      const auto file = OpenBytes(whole->substr(0, n));
      ASSERT_FALSE(file.ok()) << "the first " << n << " bytes";
      EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << file.status().message();
    }
    for (size_t at = 0; at < whole->size(); at += 3) {
      std::string bytes = *whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (at % 2 == 0 ? 0xff : 1 << at % 8));
      const auto file = OpenBytes(bytes);
      if (!file.ok()) continue;
      for (const StoredTensor& t : file->tensors()) {
        if (t.bytes().v > 1 << 20) continue;  // an expanded one
        std::vector<std::byte> data(static_cast<size_t>(t.bytes().v));
        EXPECT_TRUE(file->ReadTensor(t.name, data).ok()) << "byte " << at << " flipped";
      }
    }
  }
}

TEST(TorchFile, IsToldFromSafetensorsByItsFirstBytes) {
  MemoryEnv env;
  env.files["model.safetensors"] = FileOf(kPickle);  // whatever its name
  const auto torch = OpenTensorFile(env, "model.safetensors");
  ASSERT_TRUE(torch.ok()) << torch.status().message();
  EXPECT_EQ((*torch)->kind(), "PyTorch");
  // A header of 0x04034b50 bytes, which begins as a zip archive does.
  env.files["f.bin"] = "PK\x03\x04\0\0\0\0{}"s;
  EXPECT_NE(OpenTensorFile(env, "f.bin").status().message().find("neither as torch.save"), std::string::npos);
  env.files["f.bin"] = "{}";
  EXPECT_EQ(OpenTensorFile(env, "f.bin").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(OpenTensorFile(env, "absent").status().code(), StatusCode::kNotFound);
  env.files["f.pkl"] = PickleOf(DictOp({{"a", "N"}}));
  EXPECT_NE(OpenTensorFile(env, "f.pkl").status().message().find("is a pickle, where safetensors"), std::string::npos);
}

}  // namespace
}  // namespace temper::torch_file_test
