#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer::text {

/// The tokenizer of models/tiny-v41, loaded once per test program.
inline const Tokenizer& tiny_tokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::load(std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41");
  return tokenizer;
}

/// The message of the deepinfer::Error that `body` throws; fails the test if it throws none.
template <typename Body>
std::string error_of(Body&& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

/// Expects `text` to contain `part`.
inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

}  // namespace deepinfer::text
