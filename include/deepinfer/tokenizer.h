#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/error.h"

namespace deepinfer {

struct TokenizerOptions {
  /// Pieces of text whose ids are remembered, per thread that encodes at the same time; 64 bytes
  /// each, rounded up to a power of two; 0: none. Never changes a result.
  int64_t cache_pieces = 65536;

  /// Throws kInvalidArgument naming the field, its value and the range.
  void validate() const;
};

/// What encode() does with the spellings of added tokens ("<think>", "<｜User｜>", …) in a text.
enum class SpecialTokens {
  kParse,  ///< They become the added token. For text that the program itself wrote.
  kPlain,  ///< They are encoded like any other text. For everything that users wrote.
};

/// A byte-level BPE tokenizer with DeepSeek's pre-tokeniser. Immutable: all member functions may be
/// called from any thread. Any byte string can be encoded, and decode(encode(text)) == text always;
/// bytes that are not UTF-8 are encoded byte for byte, apart from the text around them.
class Tokenizer {
 public:
  /// Loads `directory`/tokenizer.json. Errors: kNotFound, kIo, kInvalidFile, kUnsupported (a kind
  /// of model, normaliser, pre-tokeniser or decoder that is not DeepSeek's, by name).
  static Tokenizer load(const std::filesystem::path& directory,
                        const TokenizerOptions& options = {});
  /// Loads from the text of a tokenizer.json; `source` names it in errors.
  static Tokenizer from_json(std::string_view json, std::string_view source,
                             const TokenizerOptions& options = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids are 0 … vocab_size() - 1, added tokens included.
  int64_t vocab_size() const;

  /// The ids of a text. Nothing is added in front or behind.
  std::vector<int32_t> encode(std::string_view text,
                              SpecialTokens special = SpecialTokens::kParse) const;
  /// encode(), appending to `ids`.
  void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const;

  /// The bytes that the ids stand for, which need not be valid UTF-8 (see replace_invalid_utf8).
  /// `skip_special` leaves out the added tokens that tokenizer.json marks as special. Errors:
  /// kInvalidArgument for an id outside the vocabulary, naming its index.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  /// The bytes of one token; empty for an id outside the vocabulary.
  std::string_view token_bytes(int32_t id) const;
  /// The entry of tokenizer.json: the byte alphabet's spelling, or an added token's text. Empty for
  /// an id outside the vocabulary.
  std::string_view token_piece(int32_t id) const;
  /// The id of an added token, by its exact text ("</think>").
  std::optional<int32_t> added_token(std::string_view text) const;
  bool is_added(int32_t id) const;
  /// Whether tokenizer.json marks the token as special (begin and end of sentence, padding).
  bool is_special(int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// `bytes` with every ill-formed UTF-8 sequence (maximal subpart) replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

/// Turns a stream of ids into a stream of text that never splits a character. All that it returned,
/// joined, equals replace_invalid_utf8(decode(all ids)). Used by one thread at a time; the
/// tokenizer must outlive it.
class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  /// The text that became certain with this token: whole characters, and U+FFFD where bytes can no
  /// longer become one. Ids outside the vocabulary have no text.
  std::string push(int32_t id);
  /// The rest: U+FFFD if a character was begun and not ended. Ready for another stream afterwards.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  ///< The bytes of a begun character, at most three.
};

}  // namespace deepinfer
