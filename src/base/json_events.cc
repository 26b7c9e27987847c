#include "base/json_events.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"

namespace deepinfer {
namespace {

/// Checks nesting and equal keys, and passes nlohmann's events on.
class Checker : public nlohmann::json_sax<nlohmann::json> {
 public:
  Checker(std::string_view source, int max_depth, JsonEvents& events)
      : source_(source), max_depth_(max_depth), events_(events) {}

  bool null() override {
    events_.null();
    return true;
  }
  bool boolean(bool value) override {
    events_.boolean(value);
    return true;
  }
  bool number_integer(number_integer_t value) override {
    events_.negative(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    events_.not_negative(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t& written) override {
    events_.number(value, written);
    return true;
  }
  bool string(string_t& value) override {
    events_.string(std::move(value));
    return true;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override {
    open();
    events_.begin_object();
    return true;
  }
  bool start_array(size_t) override {
    open();
    events_.begin_array();
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      fail(ErrorCode::kInvalidFile, "{}: the key \"{}\" appears twice in one JSON object", source_,
           name.substr(0, 200));
    }
    events_.member(std::move(name));
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // What was expected stands behind nlohmann's internal id and, for most errors, a place that is
    // reported here as a byte: "[json.exception.parse_error.101] parse error at line 1, column 2:
    // ".
    std::string_view what = error.what();
    const auto remove_prefix = [&what](std::string_view begin, std::string_view end) {
      const size_t at = what.find(end);
      if (what.starts_with(begin) && at != std::string_view::npos) {
        what.remove_prefix(at + end.size());
      }
    };
    remove_prefix("[json.exception", "] ");
    remove_prefix("parse error", ": ");
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON at byte {}: {}", source_, position,
         what.substr(0, 300));
  }

 private:
  void open() {
    if (static_cast<int>(keys_.size()) >= max_depth_) {
      fail(ErrorCode::kInvalidFile, "{}: JSON nested deeper than {} levels", source_, max_depth_);
    }
    keys_.emplace_back();
  }
  bool close() {
    keys_.pop_back();
    events_.end_container();
    return true;
  }

  std::string_view source_;
  int max_depth_;
  JsonEvents& events_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object; empty for an array
};

}  // namespace

void read_json(std::string_view text, std::string_view source, int max_depth, JsonEvents& events) {
  // nlohmann takes a NUL for the end of the text and would ignore what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON at byte {}: a NUL byte", source, nul + 1);
  }
  Checker checker(source, max_depth, events);
  nlohmann::json::sax_parse(text, &checker);
}

}  // namespace deepinfer
