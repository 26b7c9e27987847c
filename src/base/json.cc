#include "base/json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_events.h"

namespace deepinfer {
namespace {

/// Builds the value. nlohmann's own builder keeps one of two equal keys silently and looks a key up
/// by linear search before adding it, which is quadratic in the size of an object.
class Builder : public JsonEvents {
 public:
  Json take() { return std::move(root_); }

  void null() override { place(nullptr); }
  void boolean(bool value) override { place(value); }
  void negative(int64_t value) override { place(value); }
  void not_negative(uint64_t value) override { place(value); }
  void number(double value, const std::string&) override { place(value); }
  void string(std::string value) override { place(std::move(value)); }
  void begin_object() override { open_.push_back(place(Json::object())); }
  void begin_array() override { open_.push_back(place(Json::array())); }
  void end_container() override { open_.pop_back(); }
  void member(std::string name) override { key_ = std::move(name); }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    object.emplace_back(std::move(key_), std::move(value));
    return &object.back().second;
  }

  Json root_;
  std::string key_;
  std::vector<Json*> open_;  // each stays where it is while open: only the innermost grows
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  Builder builder;
  read_json(text, source, max_depth, builder);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, int64_t max_bytes, int max_depth) {
  return parse_json(read_file(path, max_bytes), path.string(), max_depth);
}

}  // namespace deepinfer
