#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace deepinfer::checkpoint {

/// A new folder under the system's temporary folder, removed with its content on destruction.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "deepinfer.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail(ErrorCode::kIo, "{}: cannot create", pattern);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace deepinfer::checkpoint
