#include <functional>

#include "base/file.h"
#include "test_support.h"
#include "text/byte_alphabet.h"
#include "text/json_value.h"

namespace deepinfer::text {
namespace {

/// A tokenizer.json with the tiny model's pipeline and a vocabulary of the 256 bytes and `extra`
/// pieces.
JsonValue small_file(const std::vector<std::string>& extra = {"ab"}) {
  const std::filesystem::path path =
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41/tokenizer.json";
  JsonValue root = parse_json_value(read_file(path, 1 << 24), path.string());
  JsonValue vocab = JsonValue::object();
  const auto add = [&](const std::string& piece) {
    vocab.set(piece, parse_json_value(std::to_string(vocab.values.size()), "id"));
  };
  for (int b = 0; b < 256; ++b) add(byte_piece(static_cast<uint8_t>(b)));
  for (const std::string& piece : extra) add(piece);
  root.find("model")->set("vocab", vocab);
  root.find("model")->set("merges", parse_json_value(R"([["a","b"]])", "merges"));
  root.set("added_tokens", parse_json_value("[]", "added"));
  return root;
}

Tokenizer load(const JsonValue& root) {
  return Tokenizer::from_json(to_python_json(root), "t.json");
}

void set_path(JsonValue& root, const std::vector<std::string>& path, const std::string& json) {
  JsonValue* at = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    at = at->is(JsonValue::Kind::kArray) ? &at->values.at(std::stoul(path[i])) : at->find(path[i]);
    ASSERT_NE(at, nullptr) << path[i];
  }
  at->set(path.back(), parse_json_value(json, "edit"));
}

TEST(TokenizerJson, AcceptsBothSpellingsOfMerges) {
  JsonValue root = small_file();
  EXPECT_EQ(load(root).encode("ab"), std::vector<int32_t>{256});
  root.find("model")->set("merges", parse_json_value(R"(["a b"])", "merges"));
  EXPECT_EQ(load(root).encode("ab"), std::vector<int32_t>{256});
}

struct BadCase {
  std::vector<std::string> path;
  std::string json;
  ErrorCode code;
  std::string message;  // a part of the error's
};

TEST(TokenizerJson, RefusesOtherKindsByName) {
  const ErrorCode unsupported = ErrorCode::kUnsupported;
  const std::vector<BadCase> cases = {
      {{"model", "type"}, R"("Unigram")", unsupported, "\"Unigram\""},
      {{"model", "byte_fallback"}, "true", unsupported, "byte_fallback"},
      {{"model", "dropout"}, "0.1", unsupported, "dropout"},
      {{"model", "unk_token"}, R"("<unk>")", unsupported, "unk_token"},
      {{"model", "ignore_merges"}, "true", unsupported, "ignore_merges"},
      {{"normalizer"}, R"({"type":"NFKC"})", unsupported, "\"NFKC\""},
      {{"normalizer", "normalizers"}, R"([{"type":"Lowercase"}])", unsupported, "\"Lowercase\""},
      {{"pre_tokenizer"}, R"({"type":"Metaspace"})", unsupported, "\"Metaspace\""},
      {{"pre_tokenizer"}, "null", unsupported, "pre-tokenizer is null"},
      {{"pre_tokenizer", "pretokenizers"}, "[]", unsupported, "of 0 steps"},
      {{"pre_tokenizer", "pretokenizers", "0", "pattern"},
       R"({"Regex":"\\d"})",
       unsupported,
       "step 0"},
      {{"pre_tokenizer", "pretokenizers", "2", "behavior"}, R"("Removed")", unsupported, "step 2"},
      {{"pre_tokenizer", "pretokenizers", "3", "use_regex"}, "true", unsupported, "use_regex"},
      {{"pre_tokenizer", "pretokenizers", "3", "add_prefix_space"},
       "true",
       unsupported,
       "add_prefix"},
      {{"decoder"}, R"({"type":"WordPiece"})", unsupported, "\"WordPiece\""},
      {{"added_tokens"}, R"([{"id":257,"content":"<x>","lstrip":true}])", unsupported, "lstrip"},
  };
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.path.back() + " = " + bad.json);
    JsonValue root = small_file();
    set_path(root, bad.path, bad.json);
    const std::string message = error_of([&] { load(root); }, bad.code);
    expect_contains(message, bad.message);
    expect_contains(message, "t.json: ");
  }
}

TEST(TokenizerJson, RefusesInconsistentEntries) {
  const ErrorCode invalid = ErrorCode::kInvalidFile;
  const std::vector<BadCase> cases = {
      {{"model", "vocab"}, "{}", invalid, "no piece for the byte 0x00"},
      {{"model", "vocab"}, "[]", invalid, "\"vocab\""},
      {{"model", "merges"}, "{}", invalid, "\"merges\""},
      {{"model", "merges"}, R"(["a b","a b"])", invalid, "merges[1] repeats"},
      {{"model", "merges"}, R"(["a bb"])", invalid, "\"bb\""},
      {{"model", "merges"}, R"(["b a"])", invalid, "\"ba\""},
      {{"model", "merges"}, R"(["ab"])", invalid, "merges[0] is not a pair"},
      {{"model", "merges"}, R"(["a b c"])", invalid, "merges[0] is not a pair"},
      {{"model", "merges"}, R"([["a"]])", invalid, "merges[0] is not a pair"},
      {{"model", "merges"}, "[3]", invalid, "merges[0] is not a pair"},
      {{"model", "vocab", "ab"}, "255", invalid, "id 255 belongs to both"},
      {{"model", "vocab", "ab"}, "-1", invalid, "\"ab\" is -1"},
      {{"model", "vocab", "ab"}, "257", invalid, "0 … 256"},
      {{"model", "vocab", "ab"}, "1e2", invalid, "expected an integer"},
      {{"model", "vocab", "ab"}, "99999999999999999999", invalid, "expected an integer"},
      {{"model", "vocab", "ab"}, R"("1")", invalid, "expected an integer"},
      {{"model", "vocab", ""}, "257", invalid, "empty piece"},
      {{"added_tokens"}, "{}", invalid, "expected a list"},
      {{"added_tokens"}, "[1]", invalid, "added_tokens[0] is a number"},
      {{"added_tokens"}, R"([{"id":257}])", invalid, "\"content\""},
      {{"added_tokens"}, R"([{"content":"<x>"}])", invalid, "\"id\""},
      {{"added_tokens"}, R"([{"id":257,"content":""}])", invalid, "0 bytes"},
      {{"added_tokens"}, R"([{"id":3,"content":"<x>"}])", invalid, "contradicts"},
      {{"added_tokens"}, R"([{"id":257,"content":"ab"}])", invalid, "contradicts"},
      {{"added_tokens"}, R"([{"id":258,"content":"<x>"}])", invalid, "0 … 257"},
      {{"added_tokens"},
       R"([{"id":257,"content":"<x>"},{"id":258,"content":"<x>"}])",
       invalid,
       "twice"},
      {{"added_tokens"},
       R"([{"id":258,"content":"<x>"},{"id":256,"content":"ab"}])",
       invalid,
       "no token has id 257"},
  };
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.path.back() + " = " + bad.json);
    JsonValue root = small_file();
    set_path(root, bad.path, bad.json);
    const std::string message = error_of([&] { load(root); }, bad.code);
    expect_contains(message, bad.message);
    expect_contains(message, "t.json: ");
  }
}

TEST(TokenizerJson, RefusesPiecesOutsideTheByteAlphabet) {
  JsonValue root = small_file({"ab", "漢"});
  expect_contains(error_of([&] { load(root); }, ErrorCode::kInvalidFile), "byte alphabet");
  root.set("added_tokens", parse_json_value(R"([{"id":257,"content":"漢","special":true}])", "x"));
  const Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.encode("a漢"), (std::vector<int32_t>{tokenizer.encode("a")[0], 257}));
}

TEST(TokenizerJson, RefusesTextThatIsNoTokenizer) {
  for (const std::string text :
       {"", "[]", "{}", "null", "{\"model\":3}", "\xff", "{\"model\":{\"type\":[]}}"}) {
    SCOPED_TRACE(text);
    EXPECT_THROW(Tokenizer::from_json(text, "t.json"), Error);
  }
}

}  // namespace
}  // namespace deepinfer::text
