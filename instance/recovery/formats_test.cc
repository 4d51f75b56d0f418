// FORMATS.md, byte by byte: what is written lies where it says, and nothing else does. Data of earlier
// versions has to stay readable: who changes one of these changes a magic, a format number, or reads both.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "instance/execution/branch.h"
#include "instance/log/board.h"
#include "instance/log/box_manifest.h"
#include "instance/log/entry.h"
#include "instance/log/epoch_file.h"
#include "instance/log/page_changes_testing.h"
#include "instance/log/ring_directory.h"
#include "instance/log/segment_file.h"
#include "instance/recovery/checkpoint.h"
#include "instance/recovery/warm_pages.h"
#include "instance/storage/files/double_write.h"
#include "runtime/crc32c.h"
#include "runtime/descriptor.h"

namespace islands::recovery {
namespace {

using Bytes = std::vector<std::byte>;

std::span<const std::byte> View(const std::string& text) { return std::as_bytes(std::span(text)); }

// Little endian.
void Put(Bytes* to, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to->push_back(static_cast<std::byte>(number >> 8 * i));
}
void Put(Bytes* to, const std::string& text) { to->insert(to->end(), View(text).begin(), View(text).end()); }

// Fields of some bytes; those that nobody names have to be zero.
class Layout {
 public:
  explicit Layout(std::span<const std::byte> bytes) : bytes_(bytes), named_(bytes.size()) {}
  ~Layout() {
    for (size_t at = 0; at < bytes_.size(); ++at) {
      if (!named_[at]) {
        EXPECT_EQ(bytes_[at], std::byte{0}) << "offset " << at;
      }
    }
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  Layout& Number(size_t at, size_t bytes, uint64_t number) {
    Bytes expected;
    Put(&expected, number, bytes);
    return Raw(at, expected);
  }
  Layout& Text(size_t at, const std::string& text) { return Raw(at, View(text)); }
  Layout& Raw(size_t at, std::span<const std::byte> expected) {
    EXPECT_LE(at + expected.size(), bytes_.size());
    for (size_t i = 0; i < expected.size() && at + i < bytes_.size(); ++i) {
      EXPECT_EQ(bytes_[at + i], expected[i]) << "offset " << at + i;
      named_[at + i] = true;
    }
    return *this;
  }
  // CRC-32C at `at` of `before`, and of the bytes up to `end` with the field itself zero.
  Layout& Checksum(size_t at, size_t end, const Bytes& before = {}) {
    Bytes covered(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(end));
    std::fill_n(covered.begin() + static_cast<ptrdiff_t>(at), 4, std::byte{0});
    return Number(at, 4, runtime::Crc32c(covered, runtime::Crc32c(before)));
  }

 private:
  std::span<const std::byte> bytes_;
  std::vector<bool> named_;
};

constexpr log::StreamId kStream{.life = 0x0102030405060708, .island = 0x11121314, .worker = 0x21222324};

// ---- The log ----

TEST(Formats, RingFileAndRecord) {
  std::string path = testing::TempDir() + "islands-formats-XXXXXX";
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  {
    auto ring = log::Ring::Create(path + "/ring", kStream, log::Ring::kLeastCapacity);
    ASSERT_TRUE(ring.ok()) << ring.status();
    log::RingWriter writer(**ring);
    log::Append(writer, 5, 0x1718, {View("first")});
    writer.Show();
    (*ring)->SetHead(32, 0x3132);
    log::Append(writer, 9, 0x191a, {View("second of eighteen")});
    writer.Show();
  }
  std::ifstream file(path + "/ring", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove_all(path);
  ASSERT_EQ(content.size(), 4096u + (512 << 10));
  Layout layout(View(content));
  layout.Text(0, "ISLRING2").Number(8, 8, kStream.life).Number(16, 4, kStream.island);
  layout.Number(20, 4, kStream.worker).Number(24, 8, 512 << 10);
  layout.Number(32, 8, 0x3132).Number(64, 8, 32 + 48).Number(128, 8, 32);
  for (const auto& [offset, bytes, lsn, kind, padding, body] :
       {std::tuple(0, 32, 0x1718, 5, 3, "first"), std::tuple(32, 48, 0x191a, 9, 6, "second of eighteen")}) {
    const size_t at = 4096 + static_cast<size_t>(offset);
    layout.Number(at, 4, static_cast<uint64_t>(bytes)).Number(at + 8, 8, static_cast<uint64_t>(lsn));
    layout.Number(at + 16, 1, static_cast<uint64_t>(kind)).Number(at + 17, 1, static_cast<uint64_t>(padding));
    layout.Text(at + 24, body);
    Bytes covered;  // the address, then what is behind the checksum
    Put(&covered, kStream.life, 8);
    Put(&covered, kStream.island, 4);
    Put(&covered, kStream.worker, 4);
    Put(&covered, static_cast<uint64_t>(offset), 8);
    Put(&covered, content.substr(at + 8, static_cast<size_t>(bytes) - 8));
    layout.Number(at + 4, 4, runtime::Crc32c(covered));
  }
}

TEST(Formats, Entries) {
  const coordinator::TransactionId id{0x31, 0x32, 0x133, 0x34};
  Bytes fellows;
  log::EncodeFellows(std::vector<coordinator::Fellow>{{0x41, 0x42}, {0x43, 0x44}}, &fellows);
  Layout(fellows).Number(0, 4, 0x41).Number(4, 8, 0x42).Number(12, 4, 0x43).Number(16, 8, 0x44);
  const std::string undo(200, 'u');  // a varint of two bytes
  const auto head = [&](log::EntryKind kind) {
    log::RecordBuffer buffer;
    log::EncodeEntryHead(
        {.kind = kind, .transaction = id, .left = 300, .fellows = fellows, .undo = View(undo)}, &buffer);
    return Bytes(buffer.bytes().begin(), buffer.bytes().end());
  };
  Bytes with_id, left = {std::byte{0xac}, std::byte{2}}, listed = {std::byte{24}},
                 to_undo = {std::byte{0xc8}, std::byte{1}};
  for (const uint64_t byte : {0x31, 0x32, 0xb3, 0x02, 0x34}) Put(&with_id, byte, 1);
  listed.insert(listed.end(), fellows.begin(), fellows.end());
  Put(&to_undo, undo);
  const auto join = [&](std::initializer_list<Bytes> parts) {
    Bytes all = with_id;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  EXPECT_EQ(head(log::EntryKind{1}), Bytes());  // kDone
  EXPECT_EQ(head(log::EntryKind{2}), join({to_undo}));
  EXPECT_EQ(head(log::EntryKind{3}), join({left}));
  for (const uint8_t kind : {4, 5, 8, 9}) EXPECT_EQ(head(log::EntryKind{kind}), with_id);
  Bytes check, whose = {std::byte{5}};
  Put(&check, 0x51525354, 4);
  Put(&whose, "whose");
  for (const uint8_t kind : {10, 11}) {
    log::RecordBuffer command;
    log::EncodeEntryHead({.kind = log::EntryKind{kind},
                          .transaction = id,
                          .check = 0x51525354,
                          .workload = View("whose"),
                          .input = View(undo)},
                         &command);
    EXPECT_EQ(Bytes(command.bytes().begin(), command.bytes().end()), join({check, whose, to_undo}));
  }
  EXPECT_EQ(head(log::EntryKind{6}), join({listed, to_undo}));
  EXPECT_EQ(head(log::EntryKind{7}), join({listed}));
  EXPECT_EQ(static_cast<int>(log::EntryKind::kDone), 1);
  EXPECT_EQ(static_cast<int>(log::EntryKind::kPrepare), 6);
  EXPECT_EQ(static_cast<int>(log::EntryKind::kEnd), 9);
  EXPECT_EQ(static_cast<int>(log::EntryKind::kCommand), 10);
  EXPECT_EQ(static_cast<int>(log::EntryKind::kCall), 11);
}

TEST(Formats, UndoEntries) {
  instance::UndoLog undo;
  undo.RecordWrite(2, 3, View("key"), 133, View("before"));
  undo.RecordInsert(2, 3, View("k"));
  undo.RecordGhost(2, 3, View("k"));
  undo.RecordRevive(2, 3, View("k"), View("b"));
  undo.RecordReplace(2, 3, View("k"), View("b"));
  undo.RecordDelete(2, 3, View("k"));
  Bytes bytes;
  undo.Encode(0, undo.size(), &bytes);
  Layout layout(bytes);
  size_t at = 0;
  for (const auto& [kind, offset, key, row] :
       {std::tuple(0, 133, std::string("key"), std::string("before")),
        std::tuple(1, 0, std::string("k"), std::string()), std::tuple(2, 0, std::string("k"), std::string()),
        std::tuple(3, 0, std::string("k"), std::string("b")),
        std::tuple(4, 0, std::string("k"), std::string("b")),
        std::tuple(5, 0, std::string("k"), std::string())}) {
    layout.Number(at, 1, static_cast<uint64_t>(kind)).Number(at + 1, 1, 2).Number(at + 2, 1, 3);
    const size_t lengths = at + (offset == 133 ? 5 : 4);
    offset == 133 ? layout.Number(at + 3, 1, 0x85).Number(at + 4, 1, 1) : layout.Number(at + 3, 1, 0);
    layout.Number(lengths, 1, key.size()).Number(lengths + 1, 1, row.size()).Text(lengths + 2, key + row);
    at = lengths + 2 + key.size() + row.size();
  }
  EXPECT_EQ(at, bytes.size());
}

TEST(Formats, SegmentHeader) {
  const Bytes bytes = log::EncodeSegmentHeader(
      {.cluster = 0x51, .island = 0x52, .number = 0x53, .bytes = 0x54, .previous = {0x55, 0x56}});
  ASSERT_EQ(bytes.size(), 4096u);
  Layout layout(bytes);
  layout.Text(0, "ISLSEGM3").Number(8, 8, 0x51).Number(16, 8, 0x53).Number(24, 8, 0x54).Number(32, 8, 0x55);
  layout.Number(40, 8, 0x56).Number(48, 4, 0x52).Checksum(52, 64);
  EXPECT_EQ(log::SegmentName(7), "segment-0000000007");
}

TEST(Formats, Frame) {
  const std::string records(64, 'r');
  Bytes bytes;
  log::EncodeFrame({kStream, 0x61, 0x64, View(records)}, {0x62, 0x63}, &bytes);
  ASSERT_EQ(bytes.size(), 48u + 64);
  Bytes place;  // island, segment, offset in it
  Put(&place, kStream.island, 8);
  Put(&place, 0x62, 8);
  Put(&place, 0x63, 8);
  Layout layout(bytes);
  layout.Text(0, "FRAM").Checksum(4, 48, place).Number(8, 8, kStream.life).Number(16, 4, kStream.worker);
  layout.Number(20, 4, 64)
      .Number(24, 8, 0x61)
      .Number(32, 4, runtime::Crc32c(View(records)))
      .Number(40, 8, 0x64)
      .Text(48, records);
}

TEST(Formats, Epoch) {
  const Bytes bytes = log::EncodeEpochBlock({.number = 0x71,
                                             .cluster = 0x72,
                                             .epoch = 0x73,
                                             .reaches = 0x74,
                                             .ends = {{0x75, 0x76}, {0x77, 0x78}}});
  ASSERT_EQ(bytes.size(), 4096u);
  EXPECT_EQ(log::EpochBlockBytes(4096), 69632u);  // 48 + 16 each, up to a multiple of 4096
  Layout layout(bytes);
  layout.Text(0, "ISLEPOCH").Number(8, 8, 0x71).Number(16, 8, 0x72).Number(24, 8, 0x73).Number(32, 8, 0x74);
  layout.Number(40, 4, 2).Checksum(44, 80).Number(48, 8, 0x75).Number(56, 8, 0x76);
  layout.Number(64, 8, 0x77).Number(72, 8, 0x78);
}

TEST(Formats, BoxManifest) {
  log::BoxId rings, boot;
  rings.fill(0xaa);
  boot.fill(0xbb);
  const Bytes bytes = log::EncodeBoxManifest({.cluster = 0x81,
                                              .ring_directory = rings,
                                              .boot = boot,
                                              .lives = {0x82, 0x83, 0x84},
                                              .cuts = {{0x85, 0x88}}});
  ASSERT_EQ(bytes.size(), 64u + 3 * 8 + 16);
  Layout layout(bytes);
  layout.Text(0, "ISLBOXM1").Number(8, 8, 0x81).Text(16, std::string(16, '\xaa'));
  layout.Text(32, std::string(16, '\xbb')).Number(48, 4, 3).Number(52, 4, 1).Checksum(56, bytes.size());
  layout.Number(64, 8, 0x82).Number(72, 8, 0x83).Number(80, 8, 0x84).Number(88, 8, 0x85).Number(96, 8, 0x88);
  EXPECT_EQ(log::RingName({7, 1, 0}), "island-1.worker-0.life-7.ring");
  EXPECT_EQ(log::ToText(rings), std::string(32, 'a'));
}

// Shared by processes of one version, but by lives and loggers that follow each other.
TEST(Formats, Board) {
  const std::vector<uint32_t> workers{1, 2};
  const runtime::UniqueFd memory(log::Board::MakeShared(workers).value());
  const auto board = log::Board::Map(memory.get(), workers).value();
  board->RaiseEpoch(9);
  board->SetDurable(7);
  board->SetFull(true);
  board->Want(8);
  board->Hold(board->Number(1, 1)) = 5;
  board->SetNeededSegment(1, 6);
  Bytes bytes(192 + 3 * 64);
  ASSERT_EQ(pread(memory.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  Layout layout(bytes);
  layout.Number(0, 8, 9).Number(64, 8, 7).Number(72, 1, 1).Number(128, 8, 8);
  layout.Number(192, 8, log::Board::kNoHold).Number(256, 8, log::Board::kNoHold).Number(264, 8, 6);
  layout.Number(320, 8, 5);
}

// ---- Changes of pages in records ----

struct Group {
  Bytes bytes;
  void PutVarint(uint64_t value) {
    std::byte varint[log::kMaxVarintBytes];
    bytes.insert(bytes.end(), varint, log::PutVarint(varint, value));
  }
  // Of page 4 of site 3, which had LSN `before`; one of `changes` follows.
  Group(uint64_t before, uint64_t lsn, uint8_t changes) {
    bytes.push_back(static_cast<std::byte>(1 | 2 | changes << 2));
    PutVarint(3 << 1);  // zigzag
    PutVarint(4 << 1);
    PutVarint(lsn);
    bytes.push_back(static_cast<std::byte>((before * 0x9e3779b97f4a7c15) >> 56));
  }
  Group& Op(uint8_t op, uint8_t slot, std::initializer_list<uint64_t> numbers, const std::string& text = "") {
    bytes.push_back(static_cast<std::byte>(op | slot << 3));
    for (const uint64_t number : numbers) PutVarint(number);
    Put(&bytes, text);
    return *this;
  }
};

TEST(Formats, PageChanges) {
  EXPECT_EQ(log::ZigZag(-1), 1u);
  EXPECT_EQ(log::ZigZag(1), 2u);
  EXPECT_EQ(log::Lsn::Of(1, 2).value(), (uint64_t{1} << 24) + 2);
  // An image of an empty leaf: page header from the tree id on, zeros, and an end of no bytes.
  log::PageCopies pages;
  log::LoneTree tree(8);
  const log::PageCopy empty = log::CopyOf(tree.space, 1);
  std::string begin(reinterpret_cast<const char*>(empty.bytes.data() + 20), 64 - 20);
  Group image(0, 0x1000001, 1);
  image.Op(7, 0, {begin.size(), 0}, begin);
  ASSERT_EQ(log::RedoAll(image.bytes, &pages), absl::OkStatus());
  EXPECT_EQ(pages[4].header().page_id, storage::PageId(3, 4).value());
  EXPECT_EQ(pages[4].header().lsn, 0x1000001u);
  const auto node = [&] { return storage::Node::At(pages[4].bytes.data()); };
  // Two inserts; a part of a value, another value; ghosts, one of which is none again.
  Group changes(0x1000001, 0x1000002, 7);
  changes.Op(2, 0, {1, 3}, "bBBB").Op(2, 0, {1, 2}, "aAA").Op(1, 1, {1, 2}, "xy").Op(4, 0, {5}, "AAAAA");
  changes.Op(5, 0, {}).Op(6, 0, {}).Op(5, 1, {});
  ASSERT_EQ(log::RedoAll(changes.bytes, &pages), absl::OkStatus());
  ASSERT_EQ(node()->count(), 2u);
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(text(node()->suffix(0)) + text(node()->value(0)), "aAAAAA");
  EXPECT_EQ(text(node()->suffix(1)) + text(node()->value(1)), "bBxy");
  EXPECT_FALSE(node()->ghost(0));
  EXPECT_TRUE(node()->ghost(1));
  Group rest(0x1000002, 0x1000003, 2);
  rest.Op(3, 0, {}).Op(0, 0, {32, 8}, "childish");
  ASSERT_EQ(log::RedoAll(rest.bytes, &pages), absl::OkStatus());
  EXPECT_EQ(node()->count(), 1u);
  EXPECT_EQ(std::memcmp(pages[4].bytes.data() + 32, "childish", 8), 0);
  // The slot as a number of its own; and an LSN before that was another one.
  Group far(0x1000003, 0x1000004, 1);
  far.Op(6, 31, {0});
  ASSERT_EQ(log::RedoAll(far.bytes, &pages), absl::OkStatus());
  EXPECT_FALSE(node()->ghost(0));
  Group gap(0x1000005, 0x1000006, 1);
  gap.Op(6, 0, {});
  EXPECT_FALSE(log::RedoAll(gap.bytes, &pages).ok());
}

// The other way round: what is written of an insert.
TEST(Formats, PageChanges_AsWritten) {
  log::LoneTree tree(8);
  log::Listening listening;
  tree.tree->Insert(View("first"), View("row"));  // an image
  listening.Again(1);
  tree.tree->Insert(View("key"), View("row"));
  const log::PageCopy after = log::CopyOf(tree.space, 1);
  Bytes expected;
  Put(&expected, 1 | 2 | 1 << 2, 1);
  Put(&expected, 3 << 1, 1);
  Put(&expected, 1 << 1, 1);
  std::byte varint[log::kMaxVarintBytes];
  expected.insert(expected.end(), varint, log::PutVarint(varint, after.header().lsn));
  expected.push_back(static_cast<std::byte>(log::FoldLsn(log::Lsn::FromValue(after.header().lsn - 1))));
  Put(&expected, 2 | 1 << 3, 1);
  Put(&expected, 3, 1);
  Put(&expected, 3, 1);
  Put(&expected, "keyrow");
  EXPECT_EQ(Bytes(listening.body.bytes().begin(), listening.body.bytes().end()), expected);
}

// ---- Pages and files of pages ----

TEST(Formats, SiteHeaderTreeAndFreePage) {
  log::LoneTree tree(64);
  const auto key = [](int i) { return "key" + std::to_string(1000 + i); };
  for (int i = 0; i < 3; ++i) tree.tree->Insert(View(key(i)), View(std::string(1500, 'r')));
  tree.tree->SetGhost(View(key(0)), true);
  for (int i = 1; i < 3; ++i) tree.tree->Remove(View(key(i)));  // the root is a leaf again
  const log::PageCopy site = log::CopyOf(tree.space, 0);
  const uint64_t free_page = *reinterpret_cast<const uint64_t*>(site.bytes.data() + 48);
  EXPECT_NE(free_page, 0u);
  Layout header(site.bytes);
  header.Number(0, 8, storage::PageId(3, 0).value()).Number(24, 1, 1).Text(32, "ISLSITE1");
  header.Number(40, 8, tree.space.end_page()).Number(48, 8, free_page);
  header.Number(56, 8, tree.space.end_page() - tree.space.used_pages()).Number(64, 4, 1).Number(72, 8, 1);
  EXPECT_EQ(storage::PageId(3, 5).value(), uint64_t{3} << 48 | 5);

  const log::PageCopy root = log::CopyOf(tree.space, 1);
  const storage::Node* node = storage::Node::At(root.bytes.data());
  ASSERT_EQ(node->count(), 1u);
  constexpr size_t kEntryBytes = 2 + 7 + 1500;
  Layout leaf(root.bytes);
  leaf.Number(0, 8, storage::PageId(3, 1).value()).Number(24, 1, 2).Number(42, 2, node->heap_begin());
  leaf.Number(40, 2, 1).Number(44, 2, kEntryBytes).Number(48, 2, 4096).Number(52, 2, 4096);
  Bytes entry;
  Put(&entry, 0x8000 | 1500, 2);
  Put(&entry, key(0) + std::string(1500, 'r'));
  Bytes slot = {std::byte{'1'}, std::byte{'y'}, std::byte{'e'}, std::byte{'k'}};  // the head, as a number
  const size_t at = root.bytes.size() - kEntryBytes;
  Put(&slot, node->heap_begin(), 2);
  Put(&slot, 7, 2);
  leaf.Raw(64, slot);
  EXPECT_EQ(node->heap_begin(), at);
  leaf.Raw(at, entry);

  const log::PageCopy freed = log::CopyOf(tree.space, free_page);
  EXPECT_EQ(freed.bytes[24], std::byte{0});
  EXPECT_EQ(freed.header().page_id, storage::PageId(3, free_page).value());
}

TEST(Formats, PageHeaderAndDoubleWrite) {
  std::vector<storage::DiskPage> file(3);
  for (storage::DiskPage& page : file) page.bytes.fill(std::byte{0});
  for (size_t i = 1; i < file.size(); ++i) {
    const storage::PageHeader header{.page_id = storage::PageId(2, i).value(),
                                     .lsn = 0x91,
                                     .tree = 0x92,
                                     .type = storage::PageType::kTree,
                                     .level = 0x93};
    std::memcpy(file[i].bytes.data(), &header, sizeof(header));
    file[i].bytes[4095] = std::byte{0x94};
    storage::StampChecksum(file[i].bytes);
    Layout page(file[i].bytes);
    page.Number(0, 8, uint64_t{2} << 48 | i).Number(8, 8, 0x91).Number(20, 4, 0x92).Number(24, 1, 2);
    page.Number(25, 1, 0x93).Number(4095, 1, 0x94).Checksum(16, 4096);
  }
  storage::EncodeBatchHeader(0x95, std::span(file).subspan(1), &file[0]);
  Layout header(file[0].bytes);
  header.Text(0, "ISLDWRT1").Number(8, 8, 0x95).Number(16, 4, 2).Checksum(20, 32);
  header.Number(24, 4, storage::HeaderOf(file[1].bytes).checksum);
  header.Number(28, 4, storage::HeaderOf(file[2].bytes).checksum);
}

TEST(Formats, Checkpoint) {
  const Bytes bytes = EncodeCheckpoint({.number = 0xa1,
                                        .cluster = 0xa2,
                                        .generation = 0xa3,
                                        .schema = 0xa4,
                                        .bound = 0xa5,
                                        .taken = 0xa6,
                                        .position = {0xa7, 0xa8},
                                        .island = 0xa9,
                                        .sites = {{0xaa, 0xab}, {0xffff, 0xac}}});
  ASSERT_EQ(bytes.size(), 4096u);
  Layout layout(bytes);
  layout.Text(0, "ISLCHKP1").Number(8, 8, 0xa1).Number(16, 8, 0xa2).Number(24, 8, 0xa3).Number(32, 8, 0xa4);
  layout.Number(40, 8, 0xa5).Number(48, 8, 0xa6).Number(56, 8, 0xa7).Number(64, 8, 0xa8).Number(72, 4, 0xa9);
  layout.Number(76, 4, 2).Checksum(80, 120).Number(88, 8, 0xaa).Number(96, 8, 0xab);
  layout.Number(104, 8, 0xffff).Number(112, 8, 0xac);
  layout.Number(84, 4, 0);
  EXPECT_EQ(storage::CheckpointPath("/data", 3), "/data/generation-0000000003-checkpoint");
  for (uint32_t flags = 0; flags < 4; ++flags) {
    Bytes block = EncodeCheckpoint({.number = 2, .set = flags & 1, .snapshot = (flags & 2) != 0});
    EXPECT_EQ(static_cast<uint32_t>(block[84]), flags);
    EXPECT_EQ(static_cast<char>(block[7]), flags == 0 ? '1' : '2');
    block.insert(block.end(), block.size(), std::byte{0});
    const absl::StatusOr<Checkpoint> read = DecodeCheckpointFile(block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->set, flags & 1);
    EXPECT_EQ(read->snapshot, (flags & 2) != 0);
  }
}

TEST(Formats, WarmPages) {
  const Bytes bytes = EncodeWarmPages(
      {.cluster = 0xa1, .generation = 0xa2, .island = 0xa3, .pages = {0xa4, uint64_t{0xffff} << 48 | 0xa5}});
  ASSERT_EQ(bytes.size(), 56u);
  Layout layout(bytes);
  layout.Text(0, "ISLWARM1").Number(8, 8, 0xa1).Number(16, 8, 0xa2).Number(24, 4, 0xa3).Checksum(28, 56);
  layout.Number(32, 8, 2).Number(40, 8, 0xa4).Number(48, 6, 0xa5).Number(54, 2, 0xffff);
  EXPECT_EQ(WarmPagesPath("/data", 3), "/data/generation-0000000003-warm-pages");
}

// It is in checkpoints: tables that are laid out alike have it for ever.
TEST(Formats, SchemaFingerprint) {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("accounts");
  table->add_key("uint64");
  table->add_key("string");
  table->set_range_end(100);
  table->set_row_bytes(16);
  control::v1::IndexSpec* index = table->add_indexes();
  index->set_name("by_owner");
  index->add_key("row:8:uint32");
  EXPECT_EQ(SchemaFingerprint(*storage::Catalog::Create(specs, 4)), 13003559493850717668u);
}

}  // namespace
}  // namespace islands::recovery
