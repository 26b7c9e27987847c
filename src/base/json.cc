#include "base/json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace deepinfer {
namespace {

/// Builds the value in one pass, checking nesting and duplicate keys. nlohmann's own builder keeps
/// one of two equal keys silently and looks a key up by linear search before adding it, which is
/// quadratic in the size of an object.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view source, int max_depth) : source_(source), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!open_.back().keys.insert(name).second) {
      fail(ErrorCode::kInvalidFile, "{}: the key \"{}\" appears twice in one JSON object", source_,
           name.substr(0, 200));
    }
    key_ = std::move(name);
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
  struct Container {
    Json* value;  // stays where it is while open: only the innermost container grows
    std::unordered_set<std::string> keys;
  };

  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    object.emplace_back(std::move(key_), std::move(value));
    return &object.back().second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      fail(ErrorCode::kInvalidFile, "{}: JSON nested deeper than {} levels", source_, max_depth_);
    }
    Json* const placed = place(std::move(container));
    open_.push_back({placed, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view source_;
  int max_depth_;
  Json root_;
  std::string key_;
  std::vector<Container> open_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  // nlohmann takes a NUL for the end of the text and would ignore what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON at byte {}: a NUL byte", source, nul + 1);
  }
  Builder builder(source, max_depth);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, int64_t max_bytes, int max_depth) {
  return parse_json(read_file(path, max_bytes), path.string(), max_depth);
}

}  // namespace deepinfer
