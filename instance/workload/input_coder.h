// What a request gives its procedure, as bytes: for command logging (recovery/command_replay.h).
//
// One function of a request names each of its fields, and serves both ways (Request::CodeInput): the same
// fields in the same order are written and read.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace islands::instance {

class InputCoder {
 public:
  // Writes behind what is in `out`.
  explicit InputCoder(std::vector<std::byte>* out) : out_(out) {}
  // Reads.
  explicit InputCoder(std::span<const std::byte> in) : in_(in) {}

  bool reads() const { return out_ == nullptr; }
  // Of a reader: all that was asked for was there, and nothing is left.
  bool ok() const { return ok_ && in_.empty(); }
  // What was read cannot be.
  void Refuse() { ok_ = false; }

  // A whole number, a bool or an enum: small ones are short.
  template <typename T>
  void Code(T& value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    if (reads()) {
      const uint64_t number = Take();
      value = static_cast<T>(IsSigned<T>() ? (number >> 1) ^ (~(number & 1) + 1) : number);
      return;
    }
    auto number = static_cast<uint64_t>(value);
    if (IsSigned<T>()) number = (number << 1) ^ (static_cast<int64_t>(number) < 0 ? ~uint64_t{0} : 0);
    for (; number >= 0x80; number >>= 7) out_->push_back(static_cast<std::byte>(number | 0x80));
    out_->push_back(static_cast<std::byte>(number));
  }
  // Bytes as they lie in memory.
  template <typename T>
  void CodeBytes(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&value, 1));
    for (std::byte& byte : bytes) CodeByte(byte);
  }
  void CodeText(std::string& text) {
    auto size = static_cast<uint64_t>(text.size());
    Code(size);
    if (reads()) {
      ok_ = ok_ && size <= in_.size();
      text.resize(ok_ ? size : 0);
    }
    for (char& character : text) CodeBytes(character);
  }
  // `code(element)` of each.
  template <typename T, typename CodeElement>
  void CodeList(std::vector<T>& list, CodeElement code) {
    auto size = static_cast<uint64_t>(list.size());
    Code(size);
    if (reads()) {
      ok_ = ok_ && size <= in_.size();  // each has a byte at least
      list.resize(ok_ ? size : 0);
    }
    for (T& element : list) code(element);
  }
  template <typename T>
  void CodeList(std::vector<T>& list) {
    CodeList(list, [this](T& element) { Code(element); });
  }

 private:
  template <typename T>
  static constexpr bool IsSigned() {
    if constexpr (std::is_enum_v<T>) {
      return std::is_signed_v<std::underlying_type_t<T>>;
    } else {
      return std::is_signed_v<T>;
    }
  }
  void CodeByte(std::byte& byte) {
    if (!reads()) return out_->push_back(byte);
    ok_ = ok_ && !in_.empty();
    if (!ok_) return;
    byte = in_.front();
    in_ = in_.subspan(1);
  }
  uint64_t Take() {
    uint64_t number = 0;
    std::byte byte{0x80};
    for (int shift = 0; (byte & std::byte{0x80}) != std::byte{0}; shift += 7) {
      ok_ = ok_ && shift < 64;
      CodeByte(byte);
      if (!ok_) return 0;
      number |= uint64_t{static_cast<uint8_t>(byte & std::byte{0x7f})} << shift;
    }
    return number;
  }

  std::vector<std::byte>* out_ = nullptr;  // null: it reads
  std::span<const std::byte> in_;
  bool ok_ = true;
};

}  // namespace islands::instance
