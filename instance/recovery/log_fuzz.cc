// Whatever lies where a log should be: an error that says what, or what was written there. With checksums
// that are right, so that what is behind them is reached as well.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "instance/execution/branch.h"
#include "instance/log/entry.h"
#include "instance/log/epoch_file.h"
#include "instance/log/log_files.h"
#include "instance/log/log_reader.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "instance/log/segment.h"
#include "instance/recovery/recovery.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"

namespace {

using namespace islands;  // a fuzz target looks at several rooms

constexpr log::StreamId kStream{.life = 3, .island = 0, .worker = 0};
constexpr log::LogPosition kAt{1, log::kSegmentHeaderBytes};
using Bytes = std::span<const std::byte>;

void TryAsFormats(Bytes input) {
  size_t taken = 0;
  (void)log::ParseRecord(kStream, 8, input, &taken);
  (void)log::DecodeFrame(0, kAt, input, &taken);
  (void)log::DecodeSegmentHeader(input);
  (void)log::DecodeEpochFile(input);
  instance::UndoLog undo;
  if (undo.Decode(input).ok()) {
    // Numbers may have been written in more bytes than they take.
    std::vector<std::byte> again, third;
    undo.Encode(0, undo.size(), &again);
    ISLANDS_CHECK(again.size() <= input.size());
    instance::UndoLog same;
    ISLANDS_CHECK(same.Decode(again).ok() && same.size() == undo.size());
    same.Encode(0, same.size(), &third);
    ISLANDS_CHECK(third == again);
  }
}

// What a procedure was given: any bytes are read or refused, and what was read is written as it was read.
void TryAsInput(Bytes input) {
  struct Given final : instance::Request {
    uint64_t number = 0;
    int32_t change = 0;
    bool flag = false;
    std::array<char, 4> name{};
    std::vector<std::vector<uint64_t>> lists;
    void CodeInput(instance::InputCoder& coder) override {
      coder.Code(number);
      coder.Code(change);
      coder.Code(flag);
      coder.CodeBytes(name);
      coder.CodeList(lists, [&](std::vector<uint64_t>& list) { coder.CodeList(list); });
    }
  };
  Given given, same;
  instance::InputCoder reader(input);
  given.CodeInput(reader);
  if (!reader.ok()) return;
  std::vector<std::byte> written;
  instance::InputCoder writer(&written);
  given.CodeInput(writer);
  instance::InputCoder again{Bytes(written)};
  same.CodeInput(again);
  ISLANDS_CHECK(again.ok() && same.number == given.number && same.change == given.change &&
                same.name == given.name && same.lists == given.lists);
}

// A record with this body comes back as it was; its entry, if it is one, is redone on an empty island.
void TryAsBody(Bytes input, uint8_t kind) {
  static const std::unique_ptr<log::Ring> ring = log::Ring::InMemory(kStream, log::Ring::kLeastCapacity);
  log::RingWriter writer(*ring);
  const uint64_t at = writer.appended();
  log::Append(writer, kind, 77, {input});
  writer.Show();
  size_t taken = 0;
  const auto record = log::ParseRecord(kStream, at, ring->Bytes(at, ring->tail()), &taken);
  ISLANDS_CHECK(record.ok() && taken == ring->tail() - at && record->kind == kind && record->lsn == 77);
  ISLANDS_CHECK(std::equal(record->body.begin(), record->body.end(), input.begin(), input.end()));
  static const auto catalog = [] {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("t");
    table->add_key("uint64");
    table->set_range_end(9);
    return *storage::Catalog::Create(specs, 1);
  }();
  const auto store =
      storage::Store::CreateForRedo(catalog, {.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true});
  ISLANDS_CHECK(store.ok());
  recovery::Recovery recovery(catalog, **store, {});
  const absl::Status redone = recovery.Redo(kStream, *record);
  ISLANDS_CHECK(redone.ok() || redone.code() == absl::StatusCode::kDataLoss);
  const absl::Status found = recovery.FindTrees();
  ISLANDS_CHECK(found.ok() ? recovery.records() != 0 : found.code() == absl::StatusCode::kDataLoss);
  ring->SetHead(ring->tail());
}

// A segment whose frames are sound and hold these bytes.
void TryAsRecords(Bytes input) {
  const Bytes records = input.first(input.size() / log::kRecordAlignment * log::kRecordAlignment);
  if (records.empty()) return;
  std::vector<std::byte> segment =
      log::EncodeSegmentHeader({.cluster = 1, .island = 0, .number = 1, .bytes = log::kLeastSegmentBytes});
  log::EncodeFrame({kStream, 0, 0, records}, kAt, &segment);
  runtime::MemoryFileSystem files;
  ISLANDS_CHECK(files.MakeDirectories("/log").ok());
  const std::string content(reinterpret_cast<const char*>(segment.data()), segment.size());
  ISLANDS_CHECK(files.ReplaceFile("/log/" + log::SegmentName(1), content).ok());
  log::LogReader reader(files, {.directory = "/log", .cluster = 1, .island = 0}, {1, segment.size()});
  const absl::Status read =
      reader.Read([](const log::StreamId&, const log::Record&) { return absl::OkStatus(); });
  ISLANDS_CHECK(read.ok() || read.code() == absl::StatusCode::kDataLoss);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes input = std::as_bytes(std::span(data, std::min<size_t>(size, 20'000)));
  TryAsFormats(input);
  TryAsRecords(input);
  TryAsInput(input);
  if (!input.empty()) TryAsBody(input.subspan(1), static_cast<uint8_t>(input[0]) % 11);
  return 0;
}
