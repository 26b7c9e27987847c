#include "server/api_keys.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace deepinfer::server {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 20;

/// Whether two texts are equal, looking at every byte of `given` whatever the others are.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  uint32_t difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char expected = key[i % key.size()];
    difference |= static_cast<uint8_t>(given[i] ^ expected);
  }
  return difference == 0;
}

bool is_key(std::string_view key) {
  return std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

ApiKeys ApiKeys::read(const std::filesystem::path& path) {
  std::vector<std::string> keys;
  std::istringstream lines(read_file(path, kMaxFileBytes));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    if (!is_key(line)) {
      fail(ErrorCode::kInvalidFile,
           "{} line {}: a key is one word of visible ASCII characters per line", path.string(),
           number);
    }
    keys.push_back(std::move(line));
  }
  if (keys.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: there is no key, expected one per line", path.string());
  }
  return ApiKeys(std::move(keys));
}

bool ApiKeys::accept(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    // The scheme's case does not matter (RFC 9110 §11.1).
    const char c = authorization[i];
    const auto lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    if (lower != kScheme[i]) return false;
  }
  const std::string_view given = authorization.substr(kScheme.size());
  bool accepted = false;
  for (const std::string& key : keys_) accepted |= equal_in_constant_time(given, key);
  return accepted;
}

}  // namespace deepinfer::server
