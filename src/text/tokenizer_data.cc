#include "text/tokenizer_data.h"

#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/json_value.h"
#include "text/pipeline_check.h"

namespace deepinfer::text {
namespace {

// Longest spelling of an added token, in bytes: bounds the look-ahead when they are searched for.
constexpr size_t kMaxAddedTokenBytes = 1024;

using Ids = std::unordered_map<std::string_view, int32_t>;

/// Collects the parts of a tokenizer.json; errors name the file and the entry.
class Reader {
 public:
  Reader(const JsonValue& root, std::string_view source) : root_(root), source_(source) {}

  TokenizerData read() {
    const JsonValue& model = member(root_, "model", JsonValue::Kind::kObject, "the file");
    const JsonValue& vocab = member(model, "vocab", JsonValue::Kind::kObject, "\"model\"");
    const JsonValue& merges = member(model, "merges", JsonValue::Kind::kArray, "\"model\"");
    const JsonValue* added = root_.find("added_tokens");
    if (added != nullptr && !added->is(JsonValue::Kind::kArray)) {
      fail(ErrorCode::kInvalidFile, "{}: \"added_tokens\" is {}, expected a list", source_,
           describe(added->kind));
    }
    size_t num_added = added == nullptr ? 0 : added->values.size();
    // Added tokens may repeat entries of the vocabulary; ids above all entries leave holes anyway.
    data_.tokens.resize(vocab.values.size() + num_added);
    read_vocab(vocab);
    for (size_t i = 0; i < num_added; ++i) read_added(added->values[i], i);
    check_no_holes();
    read_merges(merges);
    return std::move(data_);
  }

 private:
  const JsonValue& member(const JsonValue& object, std::string_view key, JsonValue::Kind kind,
                          std::string_view where) const {
    const JsonValue* value = object.find(key);
    if (value == nullptr || !value->is(kind)) {
      fail(ErrorCode::kInvalidFile, "{}: {} has no \"{}\" that is {}", source_, where, key,
           describe(kind));
    }
    return *value;
  }

  int32_t parse_id(const JsonValue& value, std::string_view what) const {
    int32_t id = -1;
    const char* end = value.text.data() + value.text.size();
    const auto [at, error] = std::from_chars(value.text.data(), end, id);
    if (!value.is(JsonValue::Kind::kNumber) || error != std::errc() || at != end || id < 0 ||
        static_cast<size_t>(id) >= data_.tokens.size()) {
      fail(ErrorCode::kInvalidFile,
           "{}: the id of {} is {}, expected an integer in 0 … {} (entries: {})", source_, what,
           to_python_json(value).substr(0, 60), data_.tokens.size() - 1, data_.tokens.size());
    }
    return id;
  }

  void read_vocab(const JsonValue& vocab) {
    ids_.reserve(vocab.values.size());
    for (size_t i = 0; i < vocab.values.size(); ++i) {
      const std::string& piece = vocab.keys[i];
      if (piece.empty())
        fail(ErrorCode::kInvalidFile, "{}: the vocabulary has an empty piece", source_);
      const int32_t id = parse_id(vocab.values[i], quote_json(piece.substr(0, 100)));
      Token& token = data_.tokens[static_cast<size_t>(id)];
      if (!token.piece.empty()) {
        fail(ErrorCode::kInvalidFile, "{}: id {} belongs to both {} and {}", source_, id,
             quote_json(token.piece.substr(0, 100)), quote_json(piece.substr(0, 100)));
      }
      token.piece = piece;
      ids_.emplace(piece, id);
    }
    for (int b = 0; b < 256; ++b) {
      const auto found = ids_.find(byte_piece(static_cast<uint8_t>(b)));
      if (found == ids_.end()) {
        fail(ErrorCode::kInvalidFile,
             "{}: the vocabulary has no piece for the byte 0x{:02X} (\"{}\")", source_, b,
             byte_piece(static_cast<uint8_t>(b)));
      }
      byte_ids_[static_cast<size_t>(b)] = found->second;
    }
  }

  void read_added(const JsonValue& entry, size_t index) {
    const std::string where = fmt::format("added_tokens[{}]", index);
    if (!entry.is(JsonValue::Kind::kObject)) {
      fail(ErrorCode::kInvalidFile, "{}: {} is {}, expected an object", source_, where,
           describe(entry.kind));
    }
    const std::string& text = member(entry, "content", JsonValue::Kind::kString, where).text;
    const int32_t id = parse_id(member(entry, "id", JsonValue::Kind::kNumber, where), where);
    if (text.empty() || text.size() > kMaxAddedTokenBytes) {
      fail(ErrorCode::kInvalidFile, "{}: {} has a content of {} bytes, expected 1 … {}", source_,
           where, text.size(), kMaxAddedTokenBytes);
    }
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (is_true(entry, flag)) {
        fail(ErrorCode::kUnsupported, "{}: {} ({}) sets \"{}\", which is not supported", source_,
             where, quote_json(text), flag);
      }
    }
    Token& token = data_.tokens[static_cast<size_t>(id)];
    const auto known = ids_.find(text);
    if ((!token.piece.empty() && token.piece != text) ||
        (known != ids_.end() && known->second != id)) {
      fail(ErrorCode::kInvalidFile, "{}: {} ({}) has id {}, which contradicts another entry",
           source_, where, quote_json(text), id);
    }
    if (!data_.added.add(text, id)) {
      fail(ErrorCode::kInvalidFile, "{}: {} ({}) appears twice", source_, where, quote_json(text));
    }
    token = {.bytes = text, .piece = text, .added = true, .special = is_true(entry, "special")};
  }

  static bool is_true(const JsonValue& object, std::string_view key) {
    const JsonValue* value = object.find(key);
    return value != nullptr && value->boolean;
  }

  /// Entries beyond the number of distinct ids were counted twice; all ids below must be taken.
  void check_no_holes() {
    std::vector<Token>& tokens = data_.tokens;
    while (!tokens.empty() && tokens.back().piece.empty()) tokens.pop_back();
    for (size_t id = 0; id < tokens.size(); ++id) {
      Token& token = tokens[id];
      if (token.piece.empty()) {
        fail(ErrorCode::kInvalidFile, "{}: no token has id {}, although ids go up to {}", source_,
             id, tokens.size() - 1);
      }
      if (token.added) continue;
      std::optional<std::string> bytes = bytes_of_piece(token.piece);
      if (!bytes) {
        fail(ErrorCode::kInvalidFile,
             "{}: the piece {} (id {}) has characters outside the byte alphabet and is no added "
             "token",
             source_, quote_json(token.piece.substr(0, 100)), id);
      }
      token.bytes = std::move(*bytes);
    }
  }

  /// A merge is "left right", or a list of the two.
  std::pair<std::string_view, std::string_view> split_merge(const JsonValue& merge,
                                                            size_t rank) const {
    if (merge.is(JsonValue::Kind::kArray) && merge.values.size() == 2 &&
        merge.values[0].is(JsonValue::Kind::kString) &&
        merge.values[1].is(JsonValue::Kind::kString)) {
      return {merge.values[0].text, merge.values[1].text};
    }
    const std::string_view text = merge.text;
    const size_t space = text.find(' ');
    if (!merge.is(JsonValue::Kind::kString) || space == std::string_view::npos ||
        text.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorCode::kInvalidFile, "{}: merges[{}] is not a pair of pieces", source_, rank);
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }

  int32_t id_in_merge(std::string_view piece, size_t rank) const {
    const auto found = ids_.find(piece);
    if (found == ids_.end()) {
      fail(ErrorCode::kInvalidFile, "{}: merges[{}] needs the piece {}, which the vocabulary lacks",
           source_, rank, quote_json(piece.substr(0, 100)));
    }
    return found->second;
  }

  void read_merges(const JsonValue& merges) {
    data_.merges = MergeTable(merges.values.size(), byte_ids_);
    std::string joined;
    for (size_t rank = 0; rank < merges.values.size(); ++rank) {
      const auto [left, right] = split_merge(merges.values[rank], rank);
      joined.assign(left).append(right);
      const int32_t left_id = id_in_merge(left, rank);
      const int32_t right_id = id_in_merge(right, rank);
      const MergeTable::Merge merge{static_cast<uint32_t>(rank), id_in_merge(joined, rank)};
      if (!data_.merges.add(left_id, right_id, merge)) {
        fail(ErrorCode::kInvalidFile, "{}: merges[{}] repeats the pair {} {}", source_, rank,
             quote_json(left.substr(0, 100)), quote_json(right.substr(0, 100)));
      }
    }
  }

  const JsonValue& root_;
  std::string_view source_;
  TokenizerData data_;
  Ids ids_;  // of the vocabulary; views into root_
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace

TokenizerData parse_tokenizer_json(std::string_view json, std::string_view source) {
  const JsonValue root = parse_json_value(json, source, 16);
  check_pipeline(root, source);
  return Reader(root, source).read();
}

}  // namespace deepinfer::text
