#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::server {

/// The keys that open the API. Immutable.
class ApiKeys {
 public:
  /// No keys: everybody may come in.
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  /// A file with one key per line; empty lines and lines that begin with # are left out. Errors:
  /// kNotFound, kIo, kInvalidFile (no key, a key with blanks or control characters).
  static ApiKeys read(const std::filesystem::path& path);

  bool empty() const { return keys_.empty(); }
  /// The first key, for a client; not of an empty list.
  const std::string& first() const { return keys_.front(); }
  /// Whether an Authorization header is "Bearer KEY" with one of the keys. Takes a time that does
  /// not depend on where it differs from them.
  bool accept(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace deepinfer::server
