#include "base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace deepinfer {
namespace {

/// Checks nesting and duplicate keys before a value is built; nlohmann's parser itself does not recurse, but
/// destroying or copying a deep value does, and it silently keeps one of two equal keys.
class ShapeChecker : public nlohmann::json_sax<Json> {
 public:
  ShapeChecker(std::string_view source, int max_depth) : source_(source), max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      fail(ErrorCode::kInvalidFile, "{}: the key \"{}\" appears twice in one JSON object", source_,
           name.substr(0, 200));
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // nlohmann's text after "parse error…: " says what was expected; its prefix is an internal id.
    std::string what = error.what();
    const size_t colon = what.find(": ");
    if (colon != std::string::npos) what = what.substr(colon + 2);
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON at byte {}: {}", source_, position,
         what.substr(0, 300));
  }

 private:
  bool open() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) > max_depth_) {
      fail(ErrorCode::kInvalidFile, "{}: JSON nested deeper than {} levels", source_, max_depth_);
    }
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::string_view source_;
  int max_depth_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  ShapeChecker checker(source, max_depth);
  Json::sax_parse(text, &checker);
  return Json::parse(text);
}

Json read_json_file(const std::filesystem::path& path, int64_t max_bytes, int max_depth) {
  return parse_json(read_file(path, max_bytes), path.string(), max_depth);
}

}  // namespace deepinfer
