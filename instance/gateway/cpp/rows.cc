#include "islands/rows.h"

#include <bit>
#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"

namespace islands {

namespace {

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// The number after a prefix, if that is all of the text.
bool NumberAfter(std::string_view prefix, std::string_view text, uint32_t* number) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  if (text.starts_with('0')) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string LittleEndian(uint64_t number, uint32_t bytes) {
  std::string encoded(bytes, '\0');
  for (uint32_t i = 0; i < bytes; ++i) encoded[i] = static_cast<char>(number >> (8 * i));
  return encoded;
}

uint64_t FromLittleEndian(std::string_view encoded) {
  uint64_t number = 0;
  for (size_t i = 0; i < encoded.size(); ++i)
    number |= uint64_t{static_cast<unsigned char>(encoded[i])} << (8 * i);
  return number;
}

// The least is its complement.
int64_t GreatestSigned(uint32_t bytes) { return std::numeric_limits<int64_t>::max() >> (64 - 8 * bytes); }
uint64_t GreatestUnsigned(uint32_t bytes) { return std::numeric_limits<uint64_t>::max() >> (64 - 8 * bytes); }

}  // namespace

absl::StatusOr<RowFormat::Place> RowFormat::Parse(const Field& field) {
  Place place{.name = field.name, .type = field.type};
  uint32_t bits = 0;
  const bool is_signed = NumberAfter("int", field.type, &bits);
  if (is_signed || NumberAfter("uint", field.type, &bits)) {
    place.kind = is_signed ? Kind::kSigned : Kind::kUnsigned;
    place.bytes = bits / 8;
    if (bits == 8 || bits == 16 || bits == 32 || bits == 64) return place;
  } else if (field.type == "double") {
    place.kind = Kind::kDouble;
    place.bytes = 8;
    return place;
  } else if (field.type == "string" || NumberAfter("string:", field.type, &place.bytes)) {
    place.kind = Kind::kString;
    return place;
  } else if (field.type == "bytes" || NumberAfter("bytes:", field.type, &place.bytes)) {
    place.kind = Kind::kBytes;
    return place;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "field ", Quoted(field.name), ": found the type ", Quoted(field.type),
      ", expected int8..int64, uint8..uint64, double, string:BYTES, bytes:BYTES; the last one may be "
      "string or bytes"));
}

absl::StatusOr<RowFormat> RowFormat::Of(const Table& table) {
  RowFormat format;
  format.table_ = table.name;
  if (table.fields.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", Quoted(table.name), " does not say what its rows hold; take them as bytes"));
  }
  for (const Field& field : table.fields) {
    absl::StatusOr<Place> place = Parse(field);
    if (!place.ok()) return place.status();
    if (format.any_length_) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", Quoted(table.name), ": field ", Quoted(format.places_.back().name),
                       " has any length, expected one that is said: others follow"));
    }
    if (format.Find(field.name).ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", Quoted(table.name), ": found two fields ", Quoted(field.name)));
    }
    if (place->bytes > std::numeric_limits<uint32_t>::max() - format.least_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", Quoted(table.name), ": its fields take more bytes than any row has"));
    }
    place->offset = format.least_bytes_;
    format.least_bytes_ += place->bytes;
    format.any_length_ = place->bytes == 0;
    format.places_.push_back(*std::move(place));
  }
  return format;
}

absl::StatusOr<const RowFormat::Place*> RowFormat::Find(std::string_view field) const {
  std::string names;
  for (const Place& place : places_) {
    if (place.name == field) return &place;
    absl::StrAppend(&names, names.empty() ? "" : ", ", place.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("table ", Quoted(table_), ": found ", Quoted(field), ", expected one of ", names));
}

absl::Status RowFormat::Wrong(const Place& place, std::string_view expected) const {
  return absl::InvalidArgumentError(absl::StrCat("table ", Quoted(table_), ", field ", Quoted(place.name),
                                                 " (", place.type, "): expected ", std::string(expected)));
}

absl::Status RowFormat::CheckLength(std::string_view row) const {
  if (row.size() == least_bytes_ || (any_length_ && row.size() > least_bytes_)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", Quoted(table_), ": a row of ", row.size(),
                                                 " bytes, expected ", any_length_ ? "at least " : "",
                                                 least_bytes_, " by its fields"));
}

absl::StatusOr<std::string> RowFormat::Encode(const Place& place, const Value& value) const {
  switch (place.kind) {
    case Kind::kSigned: {
      const int64_t greatest = GreatestSigned(place.bytes);
      const bool fits = value.is_negative() ? value.as_int64() >= ~greatest
                                            : value.as_uint64() <= static_cast<uint64_t>(greatest);
      if (!value.is_integer() || !fits)
        return Wrong(place, absl::StrCat("a whole number from ", ~greatest, " to ", greatest));
      return LittleEndian(value.as_uint64(), place.bytes);
    }
    case Kind::kUnsigned: {
      const uint64_t greatest = GreatestUnsigned(place.bytes);
      if (!value.is_integer() || value.is_negative() || value.as_uint64() > greatest)
        return Wrong(place, absl::StrCat("a whole number from 0 to ", greatest));
      return LittleEndian(value.as_uint64(), place.bytes);
    }
    case Kind::kDouble:
      if (value.is_bytes()) return Wrong(place, "a number");
      return LittleEndian(std::bit_cast<uint64_t>(value.as_double()), place.bytes);
    case Kind::kString: {
      if (!value.is_bytes()) return Wrong(place, "text");
      if (place.bytes == 0) return value.bytes();
      if (value.bytes().size() > place.bytes)
        return Wrong(place, absl::StrCat("at most ", place.bytes, " bytes, not ", value.bytes().size()));
      // It would not come back as it was.
      if (value.bytes().ends_with('\0')) return Wrong(place, "text that does not end with a zero");
      std::string padded = value.bytes();
      padded.resize(place.bytes, '\0');
      return padded;
    }
    case Kind::kBytes:
      if (!value.is_bytes()) return Wrong(place, "bytes");
      if (place.bytes != 0 && value.bytes().size() != place.bytes)
        return Wrong(place, absl::StrCat(place.bytes, " bytes, not ", value.bytes().size()));
      return value.bytes();
  }
  return Wrong(place, "a kind that there is");
}

Value RowFormat::Decode(const Place& place, std::string_view row) {
  const std::string_view part =
      row.substr(place.offset, place.bytes == 0 ? std::string_view::npos : place.bytes);
  switch (place.kind) {
    case Kind::kSigned: {
      const uint32_t unused_bits = 64 - 8 * place.bytes;
      return static_cast<int64_t>(FromLittleEndian(part) << unused_bits) >> unused_bits;
    }
    case Kind::kUnsigned:
      return FromLittleEndian(part);
    case Kind::kDouble:
      return std::bit_cast<double>(FromLittleEndian(part));
    case Kind::kString:
      return place.bytes == 0 ? part : part.substr(0, part.find_last_not_of('\0') + 1);
    case Kind::kBytes:
      break;
  }
  return part;
}

absl::StatusOr<std::string> RowFormat::Pack(const Values& values) const {
  std::string row;
  for (const Place& place : places_) {
    const auto value = values.find(place.name);
    if (value == values.end()) return Wrong(place, "a value, found none");
    const absl::StatusOr<std::string> encoded = Encode(place, value->second);
    if (!encoded.ok()) return encoded.status();
    row += *encoded;
  }
  if (values.size() == places_.size()) return row;
  for (const auto& [name, value] : values) {
    if (const auto place = Find(name); !place.ok()) return place.status();
  }
  return row;
}

absl::Status RowFormat::Set(std::string_view field, const Value& value, std::string* row) const {
  if (absl::Status status = CheckLength(*row); !status.ok()) return status;
  const absl::StatusOr<const Place*> place = Find(field);
  if (!place.ok()) return place.status();
  const absl::StatusOr<std::string> encoded = Encode(**place, value);
  if (!encoded.ok()) return encoded.status();
  row->replace((*place)->offset, (*place)->bytes == 0 ? std::string::npos : (*place)->bytes, *encoded);
  return absl::OkStatus();
}

absl::StatusOr<Values> RowFormat::Unpack(std::string_view row) const {
  if (absl::Status status = CheckLength(row); !status.ok()) return status;
  Values values;
  for (const Place& place : places_) values.emplace(place.name, Decode(place, row));
  return values;
}

absl::StatusOr<Value> RowFormat::Get(std::string_view row, std::string_view field) const {
  if (absl::Status status = CheckLength(row); !status.ok()) return status;
  const absl::StatusOr<const Place*> place = Find(field);
  if (!place.ok()) return place.status();
  return Decode(**place, row);
}

absl::StatusOr<uint32_t> RowFormat::OffsetOf(std::string_view field) const {
  const absl::StatusOr<const Place*> place = Find(field);
  if (!place.ok()) return place.status();
  return (*place)->offset;
}

}  // namespace islands
