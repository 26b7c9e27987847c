#include "base/json.h"

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
  using JsonEvents::JsonEvents;

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }

 private:
  void begin_object() override { open_.push_back(place(Json::object())); }
  void begin_array() override { open_.push_back(place(Json::array())); }
  void end_container() override { open_.pop_back(); }
  void member(std::string name) override { key_ = std::move(name); }

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
  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  Json root_;
  std::string key_;
  std::vector<Json*> open_;  // each stays where it is while open: only the innermost grows
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  Builder builder(source, max_depth);
  builder.read(text);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, int64_t max_bytes, int max_depth) {
  return parse_json(read_file(path, max_bytes), path.string(), max_depth);
}

}  // namespace deepinfer
