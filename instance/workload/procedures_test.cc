#include "instance/workload/procedures.h"

#include <gmock/gmock.h>

namespace islands::instance {
namespace {

using testing::HasSubstr;

storage::Catalog MakeCatalog() {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* rows = specs.Add();
  rows->set_name("rows");
  rows->add_key("uint64");
  rows->set_range_end(10);
  control::v1::TableSpec* copied = specs.Add();
  copied->set_name("copied");
  copied->add_key("string");
  copied->set_replicated(true);
  return *storage::Catalog::Create(specs, 2);
}

class Described final : public Workload {
 public:
  explicit Described(std::vector<Procedure> procedures) : procedures_(std::move(procedures)) {}
  const char* name() const override { return "described"; }
  std::vector<std::string> tables() const override { return {}; }
  absl::Status Load(Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(const GeneratorContext&) const override {
    return absl::UnimplementedError("");
  }
  runtime::Task<absl::Status> Run(Transaction&, const Request&) const override {
    co_return absl::UnimplementedError("");
  }
  const std::vector<Procedure>& procedures() const override { return procedures_; }

 private:
  const std::vector<Procedure> procedures_;
};

Procedure Fit(const std::string& name) {
  return {name, "about", {{"row", ValueType::kInt64}}, {{"found", ValueType::kText}}, "rows"};
}

TEST(ProcedureTable, Add_TakesThePlaceOfThoseBefore) {
  const storage::Catalog catalog = MakeCatalog();
  ProcedureTable table;
  const auto first = std::make_shared<Described>(std::vector{Fit("a"), Fit("b")});
  const auto second = std::make_shared<Described>(std::vector{Fit("c")});
  ASSERT_TRUE(table.Add("w", first, catalog).ok());
  ASSERT_TRUE(table.Add("w2", first, catalog).ok());
  ASSERT_NE(table.Find("w.b"), nullptr);
  EXPECT_EQ(table.Find("w.b")->procedure, &first->procedures()[1]);
  ASSERT_TRUE(table.Add("w", second, catalog).ok());
  EXPECT_EQ(table.Find("w.b"), nullptr);
  EXPECT_NE(table.Find("w.c"), nullptr);
  EXPECT_NE(table.Find("w2.a"), nullptr) << "another one's";
  table.Clear();
  EXPECT_EQ(table.Find("w.c"), nullptr);
}

TEST(ProcedureTable, Add_RefusesWhatCannotBeCalled) {
  const storage::Catalog catalog = MakeCatalog();
  const auto complaint = [&](auto change) {
    Procedure procedure = Fit("p");
    change(procedure);
    ProcedureTable table;
    const absl::Status status =
        table.Add("w", std::make_shared<Described>(std::vector{Fit("a"), procedure}), catalog);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_TRUE(table.entries().empty());
    return std::string(status.message());
  };
  EXPECT_THAT(complaint([](Procedure& p) { p.name = "P"; }), HasSubstr("expected a name"));
  EXPECT_THAT(complaint([](Procedure& p) { p.name = "a"; }), HasSubstr("'a': there are two"));
  EXPECT_THAT(complaint([](Procedure& p) { p.arguments.clear(); }), HasSubstr("first argument"));
  EXPECT_THAT(complaint([](Procedure& p) { p.arguments[0].type = ValueType::kText; }),
              HasSubstr("first argument must be an int64"));
  EXPECT_THAT(complaint([](Procedure& p) { p.results[0].name = "a b"; }), HasSubstr("'a b'"));
  EXPECT_THAT(complaint([](Procedure& p) { p.home_table = "copied"; }), HasSubstr("home table 'copied'"));
  EXPECT_THAT(complaint([](Procedure& p) { p.home_table = "none"; }), HasSubstr("home table 'none'"));
}

TEST(CheckValues, SaysWhichIsWrong) {
  const std::vector<NamedType> declared = {{"row", ValueType::kInt64}, {"half", ValueType::kDouble}};
  EXPECT_TRUE(CheckValues(declared, std::vector<Value>{int64_t{1}, 0.5}, "argument").ok());
  EXPECT_EQ(CheckValues(declared, std::vector<Value>{int64_t{1}}, "argument").message(),
            "found 1 arguments, expected 2");
  EXPECT_EQ(CheckValues(declared, std::vector<Value>{int64_t{1}, "x"}, "result").message(),
            "result 2 'half': found text, expected double");
}

}  // namespace
}  // namespace islands::instance
