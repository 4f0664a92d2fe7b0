#include "device/vendor_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>

#include "base/scratch_folder.h"

namespace temper::vendor_library_test {
namespace {

// Any library, by a name that the loader knows nothing of.
std::string SomeLibrary() {
  link_map* map = nullptr;
  void* const library = dlopen("libstdc++.so.6", RTLD_NOW);
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return "";
  return map->l_name;
}

// Sets a variable of the environment while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }

 private:
  const char* const name_;
  std::string before_;
};

// `folder` with a library of that name.
void Put(const std::string& folder, const char* name) {
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink(SomeLibrary(), folder + "/" + name);
}

TEST(VendorLibrary, IsFoundInTheActivePythonEnvironment) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path() + "/lib/python3.12/site-packages/nvidia/cu13/lib";
  Put(folder, "libtemper_active.so.13");
  EXPECT_FALSE(VendorLibrary::Open("libtemper_active.so.13").ok());
  const Variable active("VIRTUAL_ENV", scratch.path());
  const auto library = VendorLibrary::Open("libtemper_active.so.13");
  EXPECT_TRUE(library.ok()) << library.status().message();
}

TEST(VendorLibrary, NamesTheFirstFunctionThatItHasNot) {
  auto library = VendorLibrary::Open(SomeLibrary());
  ASSERT_TRUE(library.ok()) << library.status().message();
  int (*none)() = nullptr;
  library->Find("temper_has_no_such", &none);
  library->Find("temper_nor_such", &none);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(library->missing(), "temper_has_no_such");
}

TEST(VendorLibrary, IsFoundBesideThePython3ThatRuns) {
  const ScratchFolder scratch;
  Put(scratch.path() + "/lib/python3.12/site-packages/nvidia/nccl/lib", "libtemper_beside.so.2");
  std::filesystem::create_directories(scratch.path() + "/bin");
  std::filesystem::create_symlink(SomeLibrary(), scratch.path() + "/bin/python3");
  const Variable path("PATH", "/nowhere:" + scratch.path() + "/bin:/usr/bin");
  const auto library = VendorLibrary::Open("libtemper_beside.so.2");
  EXPECT_TRUE(library.ok()) << library.status().message();
}

TEST(VendorLibrary, IsNotTakenFromBelowTheCurrentFolder) {
  const ScratchFolder scratch;
  Put(scratch.path() + "/lib/python3.12/site-packages/nvidia/nccl/lib", "libtemper_current.so.2");
  std::filesystem::create_directories(scratch.path() + "/bin");
  std::filesystem::create_symlink(SomeLibrary(), scratch.path() + "/bin/python3");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  {
    const Variable path("PATH", "bin:/nowhere");
    EXPECT_FALSE(VendorLibrary::Open("libtemper_current.so.2").ok());
  }
  std::filesystem::current_path(before);
}

TEST(VendorLibrary, IsFoundWhereALinkThatIsNamedPython3LeadsTo) {
  const ScratchFolder scratch;
  const std::string environment = scratch / "environment", links = scratch / "links";
  Put(environment + "/lib/python3.12/site-packages/nvidia/cu13/lib", "libtemper_linked.so.13");
  std::filesystem::create_directories(environment + "/bin");
  std::filesystem::create_directories(links);
  std::filesystem::create_symlink(SomeLibrary(), environment + "/bin/python3");
  std::filesystem::create_symlink(environment + "/bin/python3", links + "/python3");
  const Variable path("PATH", links);
  const auto library = VendorLibrary::Open("libtemper_linked.so.13");
  EXPECT_TRUE(library.ok()) << library.status().message();
}

TEST(VendorLibrary, OfANamedToolkitComesBeforeThoseInUsualPlaces) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.path() + "/lib64");
  const Variable toolkit("CUDA_HOME", scratch.path());
  const std::vector<std::string> folders = VendorLibraryFolders();
  ASSERT_FALSE(folders.empty());
  EXPECT_EQ(folders[0], scratch.path() + "/lib64");
}

TEST(VendorLibrary, ThatIsNowhereIsSaidToBeSoWithTheFoldersThatWereLookedThrough) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.path() + "/lib64");
  const Variable toolkit("CUDA_HOME", scratch.path());
  const auto library = VendorLibrary::Open("libtemper_nowhere.so.1");
  ASSERT_FALSE(library.ok());
  const std::string said = library.status().message();
  EXPECT_NE(said.find("libtemper_nowhere.so.1: cannot open"), std::string::npos) << said;
  EXPECT_NE(said.find("nor is it in " + scratch.path() + "/lib64"), std::string::npos) << said;
}

}  // namespace
}  // namespace temper::vendor_library_test
