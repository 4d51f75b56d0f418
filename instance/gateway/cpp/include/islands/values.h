// Keys, rows, results and tables as programs have them. Values of rows are bytes in a std::string.
//
// Thread safety: plain values; a Batch belongs to one thread at a time.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace islands {

// A number or a text. Numbers are equal if they are the same number, whatever type they came from.
class KeyPart {
 public:
  template <typename T>
    requires(std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>)
  KeyPart(T number)  // NOLINT: 7 is a part
      : kind_(number < T{} ? Kind::kNegative : Kind::kNumber), number_(static_cast<uint64_t>(number)) {}
  KeyPart(std::string text) : kind_(Kind::kText), text_(std::move(text)) {}  // NOLINT
  KeyPart(std::string_view text) : KeyPart(std::string(text)) {}             // NOLINT
  KeyPart(const char* text) : KeyPart(std::string(text)) {}                  // NOLINT

  bool is_text() const { return kind_ == Kind::kText; }
  bool is_negative() const { return kind_ == Kind::kNegative; }
  const std::string& text() const { return text_; }  // empty if it is none
  // Of a number, as the type that the table's key has here; 0 of a text.
  uint64_t as_uint64() const { return number_; }
  int64_t as_int64() const { return static_cast<int64_t>(number_); }

  friend auto operator<=>(const KeyPart&, const KeyPart&) = default;
  friend bool operator==(const KeyPart&, const KeyPart&) = default;

 private:
  enum class Kind : uint8_t { kNegative, kNumber, kText };  // in this order

  Kind kind_;
  uint64_t number_ = 0;  // as two's complement: so negative ones, too, are in order
  std::string text_;
};

// A part for each component of the table's key, in order: 7, "ann", {-5, "ann"}. Bounds of scans may have
// fewer, and {} is no bound.
class Key {
 public:
  Key() = default;
  Key(std::initializer_list<KeyPart> parts) : parts_(parts) {}
  template <typename T>
    requires(!std::same_as<std::remove_cvref_t<T>, Key> && std::convertible_to<T, KeyPart>)
  Key(T&& part) {  // NOLINT: 7 is a key
    parts_.push_back(KeyPart(std::forward<T>(part)));
  }
  explicit Key(std::vector<KeyPart> parts) : parts_(std::move(parts)) {}

  const std::vector<KeyPart>& parts() const { return parts_; }
  size_t size() const { return parts_.size(); }
  const KeyPart& operator[](size_t number) const { return parts_[number]; }

  friend auto operator<=>(const Key&, const Key&) = default;
  friend bool operator==(const Key&, const Key&) = default;

 private:
  std::vector<KeyPart> parts_;
};

struct Row {
  Key key;
  std::string value;

  friend bool operator==(const Row&, const Row&) = default;
};

// What became of an operation.
struct Result {
  bool found = false;     // get: the row is there; writes: they found what they need; scans: true
  std::string value;      // of a get
  int64_t number = 0;     // of an add: the sum
  std::vector<Row> rows;  // of a scan
};

// Of a transaction that was committed.
struct Committed {
  std::vector<Result> results = {};  // one for each operation; none if `earlier`
  std::string transaction = {};      // its id, as `islands txn` and logs write it; empty if `earlier`
  bool earlier = false;              // it had been committed before, by a request with the same token
};

struct ScanOptions {
  Key begin = {};        // rows with begin <= key < end, in key order
  Key end = {};          // {}: no bound
  uint32_t limit = 0;    // most rows; 0 = as many as a response may hold
  bool reverse = false;  // the last ones, backwards
};

// Operations that are one transaction; each method returns the number of its result.
class Batch {
 public:
  struct Operations;  // as the library sends them

  Batch();
  Batch(const Batch& other);
  Batch& operator=(const Batch& other);
  Batch(Batch&& other) noexcept;  // `other` is empty then
  Batch& operator=(Batch&& other) noexcept;
  ~Batch();

  size_t Get(std::string_view table, const Key& key);
  // Takes the lock that a later change of the row needs: no deadlock between the two.
  size_t GetForUpdate(std::string_view table, const Key& key);
  // Whether the row is there or not.
  size_t Put(std::string_view table, const Key& key, std::string_view value);
  size_t DeleteIfThere(std::string_view table, const Key& key);
  // A row that must not be there.
  size_t Insert(std::string_view table, const Key& key, std::string_view value);
  // Rows that must be there.
  size_t Replace(std::string_view table, const Key& key, std::string_view value);
  size_t Delete(std::string_view table, const Key& key);
  // To the signed 64-bit little-endian integer at `offset` of a row that must be there.
  size_t Add(std::string_view table, const Key& key, int64_t delta, uint32_t offset = 0);
  size_t Scan(std::string_view table, const ScanOptions& scan = {});
  // Indexes are local to a partition: that of `at`, a key or its first part. Bounds are of the index.
  size_t IndexScan(std::string_view table, std::string_view index, const Key& at,
                   const ScanOptions& scan = {});

  size_t size() const;
  void Clear();
  const Operations& operations() const { return *operations_; }  // for the library

 private:
  std::unique_ptr<Operations> operations_;  // never null
};

// ---- procedures

// What a field holds, an argument or a result of a procedure: a whole number, a double or bytes.
class Value {
 public:
  template <typename T>
    requires(std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>)
  Value(T number)  // NOLINT: 7 is a value
      : kind_(number < T{} ? Kind::kNegative : Kind::kNumber), number_(static_cast<uint64_t>(number)) {}
  Value(double number) : kind_(Kind::kDouble), double_(number) {}              // NOLINT
  Value(std::string bytes) : kind_(Kind::kBytes), bytes_(std::move(bytes)) {}  // NOLINT
  Value(std::string_view bytes) : Value(std::string(bytes)) {}                 // NOLINT
  Value(const char* bytes) : Value(std::string(bytes)) {}                      // NOLINT

  bool is_integer() const { return kind_ == Kind::kNegative || kind_ == Kind::kNumber; }
  bool is_negative() const { return kind_ == Kind::kNegative; }
  bool is_double() const { return kind_ == Kind::kDouble; }
  bool is_bytes() const { return kind_ == Kind::kBytes; }
  // Of whole numbers, as the field's type has it here; otherwise 0.
  uint64_t as_uint64() const { return number_; }
  int64_t as_int64() const { return static_cast<int64_t>(number_); }
  // Of any number; otherwise 0.
  double as_double() const {
    return is_double()     ? double_
           : is_negative() ? static_cast<double>(as_int64())
                           : static_cast<double>(number_);
  }
  const std::string& bytes() const { return bytes_; }  // of a string, bytes or text; otherwise empty

  friend bool operator==(const Value&, const Value&) = default;

 private:
  enum class Kind : uint8_t { kNegative, kNumber, kDouble, kBytes };

  Kind kind_;
  uint64_t number_ = 0;
  double double_ = 0;
  std::string bytes_;
};

// Of a call that was committed.
struct Called {
  std::vector<Value> results = {};  // as the procedure has them; none if `earlier`
  std::string transaction = {};     // as of Committed
  bool earlier = false;             // likewise
};

struct NamedType {
  std::string name;
  std::string type;  // int64, double, text
};

struct Procedure {
  std::string name;  // WORKLOAD.PROCEDURE
  std::string about;
  std::vector<NamedType> arguments;
  std::vector<NamedType> results;
  std::string home_table;  // the first argument is the first part of a key of it: there it begins
};

// ---- tables

struct Index {
  std::string name;
  std::vector<std::string> key;  // components: key:COMPONENT, row:OFFSET:TYPE, row:OFFSET:string:BYTES
};

struct Field {
  std::string name;
  // int8..int64, uint8..uint64, double, string:BYTES, bytes:BYTES; the last one may be string or bytes, of
  // any length. Little-endian, without gaps; strings zero-padded.
  std::string type;
};

struct Table {
  std::string name = {};
  std::vector<std::string> key = {};  // types of the key's components
  int64_t range_begin = 0;            // of the first one; [begin, end)
  int64_t range_end = 0;
  uint32_t row_bytes = 0;   // of every row; 0 = any length, or what its fields take
  bool replicated = false;  // read-only, and whole on every island
  std::vector<Index> indexes = {};
  std::vector<std::string> key_names = {};  // of the key's components; none, or one for each
  std::vector<Field> fields = {};           // none, or the whole row
};

}  // namespace islands
