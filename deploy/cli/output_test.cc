#include "deploy/cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace islands::deploy {
namespace {

TEST(TextTable, AlignsAndTrims) {
  TextTable table;
  table.AddColumn("id", TextTable::Align::kRight);
  table.AddColumn("name");
  table.AddColumn("x", TextTable::Align::kRight);
  table.AddRow({"7", "böe", "100"});
  table.AddRow({"12", "longer", ""});
  EXPECT_EQ(table.Render(),
            "id  name      x\n"
            " 7  böe     100\n"
            "12  longer\n");
}

TEST(Nearest, SlipsOfTheFingers) {
  const std::vector<std::string> words = {"placement", "cores", "layout", "up", "data"};
  EXPECT_EQ(Nearest("placment", words), "placement");
  EXPECT_EQ(Nearest("laoyut", words), "layout");
  EXPECT_EQ(Nearest("core", words), "cores");
  EXPECT_EQ(Nearest("pu", words), "up");
  EXPECT_EQ(Nearest("elephants", words), std::nullopt);
  EXPECT_EQ(Nearest("xyz", words), std::nullopt);
  EXPECT_EQ(Nearest("", words), std::nullopt);
  EXPECT_EQ(Nearest(std::string(1000, 'a'), words), std::nullopt);
}

TEST(ErrorJson, Shape) {
  EXPECT_EQ(ErrorJson("bad", 2).dump(), R"({"error":{"message":"bad","exit_code":2}})");
}

}  // namespace
}  // namespace islands::deploy
