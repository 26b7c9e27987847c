#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace deepinfer {

/// What all readers of JSON from outside have in common: nesting, equal keys and errors are checked
/// while the text is read, in one pass and without recursion. A derived class builds the value;
/// include this header in its .cc only.
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  /// `source` names the text in errors and must outlive this.
  JsonEvents(std::string_view source, int max_depth) : source_(source), max_depth_(max_depth) {}

  /// Reads one JSON text. Errors: kInvalidFile.
  void read(std::string_view text) {
    // nlohmann takes a NUL for the end of the text and would ignore what follows.
    if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
      fail_at(nul + 1, "a NUL byte");
    }
    nlohmann::json_sax<Json>* const events = this;  // there, what is private here is public
    Json::sax_parse(text, events);
  }

 protected:
  virtual void begin_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_container() = 0;
  /// The name of the member that comes next.
  virtual void member(std::string name) = 0;

  [[noreturn]] void fail_at(size_t position, std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON at byte {}: {}", source_, position,
         what.substr(0, 300));
  }

 private:
  bool start_object(size_t) final {
    open();
    begin_object();
    return true;
  }
  bool start_array(size_t) final {
    open();
    begin_array();
    return true;
  }
  bool end_object() final { return close(); }
  bool end_array() final { return close(); }
  bool key(string_t& name) final {
    if (!keys_.back().insert(name).second) {
      fail(ErrorCode::kInvalidFile, "{}: the key \"{}\" appears twice in one JSON object", source_,
           name.substr(0, 200));
    }
    member(std::move(name));
    return true;
  }
  bool binary(binary_t&) final { return false; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) final {
    // What was expected stands behind nlohmann's internal id and, for most errors, a place that is
    // reported here as a byte: "[json.exception.parse_error.101] parse error at line 1, column 2:
    // ".
    std::string_view what = error.what();
    for (const std::string_view end : {"] ", ": "}) {
      const bool prefix = end == "] " ? what.starts_with('[') : what.starts_with("parse error");
      const size_t at = what.find(end);
      if (prefix && at != std::string_view::npos) what.remove_prefix(at + end.size());
    }
    fail_at(position, what);
  }

  void open() {
    if (static_cast<int>(keys_.size()) >= max_depth_) {
      fail(ErrorCode::kInvalidFile, "{}: JSON nested deeper than {} levels", source_, max_depth_);
    }
    keys_.emplace_back();
  }
  bool close() {
    keys_.pop_back();
    end_container();
    return true;
  }

  std::string_view source_;
  int max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object; empty for an array
};

}  // namespace deepinfer
