#include "deploy/processes/registry.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "deploy/processes/claim.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

class RegistryTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Write(const std::string& name) {
    std::ofstream(folder_ + "/" + name) << "version: 1\n";
    return CanonicalPath(folder_ + "/" + name);
  }
  Claim MakeClaim() {
    return {"test", Write("a.yaml"), folder_ + "/run", folder_ + "/data", 4, 1'800'000'000};
  }
  // Of the claim's control directory.
  std::vector<Registered> Entries() {
    std::vector<Registered> entries = ReadRegistry().entries;
    std::erase_if(entries, [this](const Registered& entry) {
      return entry.claim.control_directory != folder_ + "/run";
    });
    return entries;
  }
  const std::string folder_ = testing::TempDir() + "registry-" + std::to_string(getpid());
};

TEST_F(RegistryTest, Claim_ComesBackFromItsNote) {
  Claim claim = MakeClaim();
  claim.file = "/a \"quoted\"\nname";
  const std::string note = NoteOf(claim);
  EXPECT_EQ(note.find('\n'), std::string::npos) << "a note is one line";
  const Claim read = ClaimIn(note).value();
  EXPECT_EQ(NoteOf(read), note);
  EXPECT_EQ(read.file, claim.file);
}

TEST_F(RegistryTest, ClaimIn_Nonsense_IsRefused) {
  for (const char* note : {"", "{", "[]", "{}", "/a/control/directory, which `islands verify` looks at",
                           R"({"name": 1, "file": "/f", "control_directory": "/c", "data_directory": "/d",
                               "islands": 1, "since": 1})",
                           R"({"name": "n", "file": "/f", "control_directory": "/c", "data_directory": "/d",
                               "islands": -1, "since": 1})"}) {
    EXPECT_FALSE(ClaimIn(note).ok()) << note;
  }
}

TEST_F(RegistryTest, IsOf_GoesByNameAndFile) {
  const Claim claim = MakeClaim();
  const ControlFiles own{claim.control_directory, "test", claim.file};
  EXPECT_TRUE(IsOf(claim, own));
  EXPECT_TRUE(IsOf(claim, {claim.control_directory}));
  EXPECT_FALSE(IsOf(claim, {claim.control_directory, "other", claim.file}));
  const ControlFiles copy{claim.control_directory, "test", Write("b.yaml")};
  EXPECT_FALSE(IsOf(claim, copy));
  fs::remove(claim.file);
  EXPECT_TRUE(IsOf(claim, copy)) << "it was moved";
}

TEST_F(RegistryTest, Keep_MakesTheEntryAgain_UntilTheEnd) {
  {
    Registration registration(MakeClaim());
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(registration.Keep().ok());
      ASSERT_EQ(Entries().size(), 1u);
      EXPECT_TRUE(Entries()[0].alive);
      EXPECT_EQ(Entries()[0].pid, 0) << "we are no supervisor";
      fs::remove(Entries()[0].path);
    }
    ASSERT_TRUE(registration.Keep().ok());
  }
  EXPECT_TRUE(Entries().empty());
}

TEST_F(RegistryTest, Sweep_RemovesOnlyWhatIsGone) {
  const Claim claim = MakeClaim();
  fs::create_directory(claim.control_directory);
  {
    Registration registration(claim);
    ASSERT_TRUE(registration.Keep().ok());
    Sweep(Entries().at(0));
    const std::string path = Entries().at(0).path;
    fs::copy_file(path, path + "1");  // as a crash leaves it
    const std::vector<Registered> both = Entries();
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(std::count_if(both.begin(), both.end(), [](const auto& entry) { return entry.alive; }), 1);
    for (const Registered& entry : both) Sweep(entry);
    ASSERT_EQ(Entries().size(), 1u);
    EXPECT_EQ(Entries()[0].path, path);
    fs::copy_file(path, path + "1");
  }
  Registration next(claim);
  ASSERT_TRUE(next.Keep().ok());
  EXPECT_EQ(Entries().size(), 1u) << "what the one before has left is gone";
}

}  // namespace
}  // namespace islands::deploy
