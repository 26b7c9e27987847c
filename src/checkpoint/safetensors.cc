#include "checkpoint/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace deepinfer::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr size_t kLengthBytes = 8;
constexpr int kMaxHeaderDepth = 3;  // {name: {"shape": […]}}
constexpr size_t kMaxRank = 16;     // far above any real tensor; bounds the work per entry

/// Bits per element of every dtype of the format, so that files with tensors we ignore can still be
/// checked.
constexpr std::array<std::pair<std::string_view, int64_t>, 19> kDTypeBits = {{
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},          {"F8_E4M3", 8},     {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"U16", 16}, {"I16", 16},        {"F16", 16},        {"BF16", 16},
    {"U32", 32},    {"I32", 32}, {"F32", 32},        {"U64", 64},        {"I64", 64},
    {"F64", 64},    {"C64", 64}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
}};

/// Names the file and tensor that a check is about.
struct Where {
  std::string_view source;
  std::string_view tensor;
};

template <typename... Args>
[[noreturn]] void refuse(const Where& where, fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorCode::kInvalidFile, "{}: tensor \"{}\": {}", where.source, where.tensor.substr(0, 200),
       fmt::format(format, std::forward<Args>(args)...));
}

int64_t non_negative(const Json& value, const Where& where, std::string_view what) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
    refuse(where, "{} must hold whole numbers from 0 to 2^63 - 1", what);
  }
  return value.get<int64_t>();
}

const Json& member(const Json& object, const char* key, const Where& where) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(where, "the header does not give its {}", key);
  return *found;
}

/// Bytes that a tensor of this shape occupies. Extents next to a zero must not overflow either:
/// strides are made of them.
int64_t bytes_of(const HeaderEntry& entry, int64_t element_bytes, const Where& where) {
  int64_t bytes = element_bytes;
  for (const int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes)) {
      refuse(where, "its shape overflows 64 bits");
    }
  }
  return std::ranges::find(entry.shape, 0) != entry.shape.end() ? 0 : bytes;
}

HeaderEntry parse_entry(const std::string& name, const Json& value, int64_t payload_begin,
                        int64_t payload_bytes, std::string_view source) {
  const Where where{source, name};
  if (!value.is_object()) refuse(where, "its header entry is not an object");
  HeaderEntry entry;
  entry.name = name;
  const Json& dtype = member(value, "dtype", where);
  if (!dtype.is_string()) refuse(where, "dtype must be a string");
  entry.dtype_name = dtype.get<std::string>();
  entry.dtype = parse_dtype(entry.dtype_name);
  const auto* const known = std::ranges::find(kDTypeBits, std::string_view(entry.dtype_name),
                                              &std::pair<std::string_view, int64_t>::first);
  if (known == kDTypeBits.end()) {
    refuse(where, "\"{}\" is not a safetensors dtype", entry.dtype_name.substr(0, 40));
  }
  const int64_t element_bytes = known->second / 8;

  const Json& shape = member(value, "shape", where);
  if (!shape.is_array() || shape.size() > kMaxRank) {
    refuse(where, "shape must be a list of at most {} numbers", kMaxRank);
  }
  for (const Json& dim : shape) entry.shape.push_back(non_negative(dim, where, "shape"));

  const Json& offsets = member(value, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2)
    refuse(where, "data_offsets must be [begin, end]");
  const int64_t begin = non_negative(offsets[0], where, "data_offsets");
  const int64_t end = non_negative(offsets[1], where, "data_offsets");
  if (begin > end) refuse(where, "data_offsets [{}, {}] run backwards", begin, end);
  if (end > payload_bytes) {
    refuse(
        where,
        "data_offsets [{}, {}] pass the end of the file, which holds {} bytes of data; the file is "
        "truncated or its header is wrong",
        begin, end, payload_bytes);
  }
  const int64_t expected = bytes_of(entry, element_bytes, where);
  if (end - begin != expected) {
    refuse(where, "data_offsets [{}, {}] span {} bytes but {} [{}] takes {}", begin, end,
           end - begin, entry.dtype_name, fmt::join(entry.shape, ", "), expected);
  }
  entry.begin = payload_begin + begin;
  entry.end = payload_begin + end;
  if (entry.begin % element_bytes != 0) {
    refuse(where, "starts at file offset {}, which is not a multiple of its element size {}",
           entry.begin, element_bytes);
  }
  return entry;
}

/// Sorts into file order and checks that the tensors tile the payload.
void check_coverage(std::vector<HeaderEntry>& entries, int64_t payload_begin, int64_t file_bytes,
                    std::string_view source) {
  std::ranges::stable_sort(entries, {},
                           [](const HeaderEntry& e) { return std::pair(e.begin, e.end); });
  int64_t covered = payload_begin;
  for (const HeaderEntry& entry : entries) {
    const Where where{source, entry.name};
    if (entry.begin < covered) refuse(where, "its data overlaps that of another tensor");
    if (entry.begin > covered) {
      refuse(where, "{} bytes before it belong to no tensor", entry.begin - covered);
    }
    covered = entry.end;
  }
  if (covered != file_bytes) {
    fail(ErrorCode::kInvalidFile, "{}: {} bytes at the end of the file belong to no tensor", source,
         file_bytes - covered);
  }
}

void check_metadata(const Json& metadata, std::string_view source) {
  const bool strings = metadata.is_object() && std::ranges::all_of(metadata, &Json::is_string);
  if (!strings) {
    fail(ErrorCode::kInvalidFile, "{}: __metadata__ must be an object of strings", source);
  }
}

}  // namespace

std::vector<HeaderEntry> parse_safetensors_header(std::span<const std::byte> file,
                                                  std::string_view source) {
  if (file.size() < kLengthBytes) {
    fail(ErrorCode::kInvalidFile, "{}: {} bytes are too few for a safetensors file", source,
         file.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) || length > file.size() - kLengthBytes) {
    fail(ErrorCode::kInvalidFile,
         "{}: the header claims {} bytes; the file has {} and at most {} are accepted: it is "
         "truncated or not a "
         "safetensors file",
         source, length, file.size(), kMaxHeaderBytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) {
    fail(ErrorCode::kInvalidFile, "{}: the header must start with '{{'", source);
  }
  const Json header = parse_json(text, source, kMaxHeaderDepth);
  if (!header.is_object()) fail(ErrorCode::kInvalidFile, "{}: the header is not an object", source);

  const auto payload_begin = static_cast<int64_t>(kLengthBytes + length);
  const auto file_bytes = static_cast<int64_t>(file.size());
  std::vector<HeaderEntry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(value, source);
    } else {
      entries.push_back(
          parse_entry(name, value, payload_begin, file_bytes - payload_begin, source));
    }
  }
  check_coverage(entries, payload_begin, file_bytes, source);
  return entries;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result;
  result.file_ = MappedFile::open(path);
  result.entries_ = parse_safetensors_header(result.file_.bytes(), path.string());
  for (size_t i = 0; i < result.entries_.size(); ++i) {
    result.index_.emplace(result.entries_[i].name, i);
  }
  return result;
}

TensorView SafetensorsFile::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    fail(ErrorCode::kNotFound, "{}: has no tensor \"{}\"", path().string(), name);
  }
  return view(entries_[found->second]);
}

TensorView SafetensorsFile::view(const HeaderEntry& entry) const {
  if (!entry.dtype || entry.shape.size() > Shape::kMaxRank) {
    refuse({path().string(), entry.name}, "{} [{}] is not a dtype and rank that can be used here",
           entry.dtype_name, fmt::join(entry.shape, ", "));
  }
  // The mapping is read-only; TensorView is as const-correct as a pointer inside a struct.
  auto* const data = const_cast<std::byte*>(bytes().data()) + entry.begin;
  return {data, *entry.dtype, Shape(entry.shape)};
}

}  // namespace deepinfer::checkpoint
