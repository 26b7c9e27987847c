#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace deepinfer {
namespace {

std::string digest_of(std::string_view text, size_t piece) {
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += piece) {
    hash.add(std::as_bytes(std::span(text.substr(at, piece))));
  }
  std::string hex;
  for (const std::byte byte : hash.finish()) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[std::to_integer<size_t>(byte) >> 4];
    hex += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  return hex;
}

// The examples of FIPS 180-4 (NIST's example values), and a million a's.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(digest_of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 100),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a'), 1000),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (const size_t size : {55U, 56U, 63U, 64U, 65U, 119U, 120U, 300U}) {
    const std::string_view part = std::string_view(text).substr(0, size);
    for (const size_t piece : {1U, 3U, 64U, 67U}) {
      EXPECT_EQ(digest_of(part, piece), digest_of(part, 1000)) << size << " in " << piece;
    }
  }
}

}  // namespace
}  // namespace deepinfer
