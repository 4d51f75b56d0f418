#include "deploy/run/workload_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <fstream>

namespace islands::deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = instance::Parameter::Kind;

TEST(WordsOf, Options_AreLeftOutWithTheirValues) {
  EXPECT_THAT(WordsOf({"run", "a.yaml", "micro"}), ElementsAre("run", "a.yaml", "micro"));
  EXPECT_THAT(
      WordsOf({"--format", "json", "run", "--rows", "10", "a.yaml", "--zipf=1", "micro", "--op", "mix"}),
      ElementsAre("run", "a.yaml", "micro"));
  EXPECT_THAT(WordsOf({"run", "--help", "a.yaml", "-h", "micro"}), ElementsAre("run", "a.yaml", "micro"));
  EXPECT_THAT(WordsOf({"run", "--even", "a.yaml", "--reload", "micro"}),
              ElementsAre("run", "a.yaml", "micro"));
  EXPECT_THAT(WordsOf({"run", "--seed", "-1", "a.yaml", "--mpl"}), ElementsAre("run", "a.yaml"));
}

class WorkloadOptions : public testing::Test {
 protected:
  static DescribedWorkload Bank(const std::string& parameter = "branch_rows") {
    return {.name = "bank",
            .description = {.parameters = {{.name = parameter,
                                            .kind = Kind::kWhole,
                                            .help = "how many",
                                            .min = 1,
                                            .max = 9,
                                            .preset = "5"},
                                           {.name = "log", .kind = Kind::kPath, .help = "where to"}},
                            .tables = {"account"},
                            .rows_total_of = "account"}};
  }
  WorkloadOptions() : command_(app_.add_subcommand("run")) { command_->add_option("--mpl", options_.mpl); }

  CLI::App app_;
  RunOptions options_;
  CLI::App* command_;
};

TEST_F(WorkloadOptions, Values_AreTakenAsTheyAre) {
  ASSERT_TRUE(AddWorkloadOptions(Bank(), command_, &options_).ok());
  app_.parse("run --branch-rows nonsense --log=/tmp --rows-total 7", false);
  EXPECT_EQ(options_.parameters, (instance::Parameters{{"branch_rows", "nonsense"}, {"log", "/tmp"}}));
  EXPECT_EQ(options_.rows_total, 7);
}

TEST_F(WorkloadOptions, Help_ShowsRangesAndPresets) {
  ASSERT_TRUE(AddWorkloadOptions(Bank(), command_, &options_).ok());
  const std::string help = command_->help();
  for (const char* words :
       {"Parameters of bank", "--branch-rows N", "5", "how many; a whole number from 1 to 9",
        "where to; an absolute path; has to be given", "Rows of table account"}) {
    EXPECT_THAT(help, HasSubstr(words));
  }
}

TEST_F(WorkloadOptions, NamesOfRunsOwnOptions_AreRefused) {
  EXPECT_THAT(std::string(AddWorkloadOptions(Bank("mpl"), command_, &options_).message()),
              HasSubstr("workload 'bank' has a parameter 'mpl', but --mpl is an option of every run"));
  app_.add_option("--format");
  EXPECT_FALSE(AddWorkloadOptions(Bank("format"), command_, &options_).ok());
}

// A folder of binaries whose islandd is a shell script.
class Describe : public testing::Test {
 protected:
  Describe() : root_(std::filesystem::path(testing::TempDir()) / "describe") {
    std::filesystem::create_directories(root_ / "lib/islands");
    std::filesystem::create_directories(root_ / "bin");
    std::ofstream(root_ / "lib/islands/bank.so") << "x";
  }
  ~Describe() override { std::filesystem::remove_all(root_); }

  absl::StatusOr<DescribedWorkload> Ask(const std::string& script, const std::string& workload = "bank") {
    const std::string islandd = root_ / "bin/islandd";
    std::ofstream(islandd) << "#!/bin/sh\n" << script << "\n";
    chmod(islandd.c_str(), 0755);
    return DescribeWorkload(workload, root_ / "bin");
  }

  std::filesystem::path root_;
};

TEST_F(Describe, Islandd_IsAsked) {
  std::ofstream(root_ / "said") << instance::DescriptionToJson({.tables = {"account"}});
  const auto found = Ask("[ $1 = --describe ] && [ -e $2 ] && cat " + (root_ / "said").string());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->object, (root_ / "lib/islands/bank.so").string());
  EXPECT_THAT(found->description.tables, ElementsAre("account"));
}

TEST_F(Describe, Path_IsThatObject_CalledAsTheFile) {
  std::ofstream(root_ / "said") << instance::DescriptionToJson({.tables = {"account"}});
  std::ofstream(root_ / "mine.so") << "x";
  const auto found = Ask("cat " + (root_ / "said").string(), (root_ / "bin/../mine.so").string());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->object, (root_ / "mine.so").string());
  EXPECT_EQ(found->name, "mine");
}

TEST_F(Describe, UsersFolder_IsLookedIn_AfterTheBinariesOwn) {
  const std::string before = getenv("HOME") != nullptr ? getenv("HOME") : "";
  setenv("HOME", root_.c_str(), 1);
  std::filesystem::create_directories(root_ / ".local/lib/islands");
  std::ofstream(root_ / ".local/lib/islands/bank.so") << "x";
  std::ofstream(root_ / ".local/lib/islands/mine.so") << "x";
  std::ofstream(root_ / "said") << instance::DescriptionToJson({.tables = {"account"}});
  const auto bank = Ask("cat " + (root_ / "said").string());
  const auto mine = Ask("cat " + (root_ / "said").string(), "mine");
  const std::string names = NamesOfWorkloads(root_ / "bin");
  setenv("HOME", before.c_str(), 1);
  ASSERT_TRUE(bank.ok() && mine.ok()) << bank.status() << mine.status();
  EXPECT_EQ(bank->object, (root_ / "lib/islands/bank.so").string());
  EXPECT_EQ(mine->object, (root_ / ".local/lib/islands/mine.so").string());
  EXPECT_EQ(names, "bank, mine");
}

TEST_F(Describe, WhatGoesWrong_IsTold) {
  EXPECT_THAT(std::string(Ask("echo it is torn >&2; exit 1").status().message()),
              HasSubstr("cannot say what workload 'bank' can be told: it is torn"));
  EXPECT_THAT(std::string(Ask("exit 7").status().message()), HasSubstr("told: exit code 7"));
  EXPECT_THAT(std::string(Ask("echo hello").status().message()), HasSubstr("found no description"));
}

TEST_F(Describe, NoSuchWorkload_NamesThoseThereAre) {
  const absl::Status status = Ask("", "tpce").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("no workload 'tpce'"), HasSubstr("no tpce.so in"),
                             HasSubstr("built are: bank")));
  EXPECT_THAT(std::string(Ask("", "a b").status().message()),
              HasSubstr("WORKLOAD: found 'a b', expected the name of a workload"));
  EXPECT_THAT(std::string(Ask("", "nowhere/bank.so").status().message()),
              testing::AllOf(HasSubstr("WORKLOAD: /"), HasSubstr("/nowhere/bank.so: No such file")));
  EXPECT_THAT(std::string(Ask("", "a/b c.so").status().message()),
              HasSubstr("WORKLOAD: found 'a/b c.so', expected the name of a workload"));
}

}  // namespace
}  // namespace islands::deploy
