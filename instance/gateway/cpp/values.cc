#include "islands/values.h"

#include "instance/gateway/cpp/convert.h"

namespace islands {

Batch::Batch() : operations_(std::make_unique<Operations>()) {}
Batch::Batch(const Batch& other) : operations_(std::make_unique<Operations>(*other.operations_)) {}
Batch& Batch::operator=(const Batch& other) {
  *operations_ = *other.operations_;
  return *this;
}
Batch::Batch(Batch&& other) noexcept : Batch() { operations_.swap(other.operations_); }
Batch& Batch::operator=(Batch&& other) noexcept {
  operations_.swap(other.operations_);
  if (this != &other) other.Clear();
  return *this;
}
Batch::~Batch() = default;

size_t Batch::size() const { return static_cast<size_t>(operations_->list.size()); }
void Batch::Clear() { operations_->list.Clear(); }

namespace {

using client::v1::Operation;

Operation* Added(Batch::Operations& operations, std::string_view table) {
  Operation* operation = operations.list.Add();
  operation->set_table(std::string(table));
  return operation;
}

// Of the kinds that have a key and a value.
template <typename Kind>
void FillRow(const Key& key, std::string_view value, Kind* kind) {
  internal::FillKey(key, kind->mutable_key());
  kind->set_value(std::string(value));
}

template <typename Kind>
void FillScan(const ScanOptions& scan, Kind* kind) {
  internal::FillKey(scan.begin, kind->mutable_begin());
  internal::FillKey(scan.end, kind->mutable_end());
  kind->set_limit(scan.limit);
  kind->set_reverse(scan.reverse);
}

}  // namespace

size_t Batch::Get(std::string_view table, const Key& key) {
  internal::FillKey(key, Added(*operations_, table)->mutable_get()->mutable_key());
  return size() - 1;
}

size_t Batch::GetForUpdate(std::string_view table, const Key& key) {
  client::v1::Get* get = Added(*operations_, table)->mutable_get();
  internal::FillKey(key, get->mutable_key());
  get->set_for_update(true);
  return size() - 1;
}

size_t Batch::Put(std::string_view table, const Key& key, std::string_view value) {
  FillRow(key, value, Added(*operations_, table)->mutable_put());
  return size() - 1;
}

size_t Batch::Insert(std::string_view table, const Key& key, std::string_view value) {
  FillRow(key, value, Added(*operations_, table)->mutable_insert());
  return size() - 1;
}

size_t Batch::Replace(std::string_view table, const Key& key, std::string_view value) {
  FillRow(key, value, Added(*operations_, table)->mutable_replace());
  return size() - 1;
}

size_t Batch::Delete(std::string_view table, const Key& key) {
  internal::FillKey(key, Added(*operations_, table)->mutable_delete_()->mutable_key());
  return size() - 1;
}

size_t Batch::DeleteIfThere(std::string_view table, const Key& key) {
  client::v1::Delete* gone = Added(*operations_, table)->mutable_delete_();
  internal::FillKey(key, gone->mutable_key());
  gone->set_may_miss(true);
  return size() - 1;
}

size_t Batch::Add(std::string_view table, const Key& key, int64_t delta, uint32_t offset) {
  client::v1::Add* add = Added(*operations_, table)->mutable_add();
  internal::FillKey(key, add->mutable_key());
  add->set_delta(delta);
  add->set_offset(offset);
  return size() - 1;
}

size_t Batch::Scan(std::string_view table, const ScanOptions& scan) {
  FillScan(scan, Added(*operations_, table)->mutable_scan());
  return size() - 1;
}

size_t Batch::IndexScan(std::string_view table, std::string_view index, const Key& at,
                        const ScanOptions& scan) {
  client::v1::IndexScan* kind = Added(*operations_, table)->mutable_index_scan();
  kind->set_index(std::string(index));
  internal::FillKey(at, kind->mutable_at());
  FillScan(scan, kind);
  return size() - 1;
}

}  // namespace islands
