// How fast text becomes token ids, on one thread, with the cache of pieces and without it.
//
// Usage: tokenizer_bench [--model DIR] [--megabytes N] [--write DIR] [FILE…]
// The texts: English-like and Chinese-like ones, drawn from the vocabulary's own words by Zipf's
// law so that they never repeat; code-like lines; hostile ones that make a slow tokenizer
// quadratic; and FILEs.
// --write keeps each text and its ids (int32), for tokenizer_compare.py. The full vocabulary is
// used if DEEPINFER_TEST_DATA names the large test data, else the tiny one. Times are CPU times.

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer {
namespace {

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Draws from a list of strings by Zipf's law: the k-th is drawn in proportion to 1 / (k + 3).
class Zipf {
 public:
  explicit Zipf(std::vector<std::string> items) : items_(std::move(items)) {
    double sum = 0;
    for (size_t k = 0; k < items_.size(); ++k) {
      sum += 1 / (static_cast<double>(k) + 3);
      cumulative_.push_back(sum);
    }
  }

  const std::string& draw(std::mt19937& random) const {
    const double at = std::uniform_real_distribution<>(0, cumulative_.back())(random);
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), at);
    return items_[static_cast<size_t>(
        std::min<std::ptrdiff_t>(found - cumulative_.begin(), std::ssize(cumulative_) - 1))];
  }

 private:
  std::vector<std::string> items_;
  std::vector<double> cumulative_;
};

/// The tokens that satisfy a predicate, in the order of their ids: about that of their frequency.
std::vector<std::string> tokens_where(const Tokenizer& tokenizer,
                                      const std::function<bool(std::string_view)>& wanted) {
  std::vector<std::string> found;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_added(id) && wanted(tokenizer.token_bytes(id))) {
      found.emplace_back(tokenizer.token_bytes(id));
    }
  }
  return found;
}

bool is_english_word(std::string_view token) {
  return token.size() > 1 && token[0] == ' ' &&
         std::all_of(token.begin() + 1, token.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool is_chinese_word(std::string_view token) {
  // Three-byte characters from U+4E00 on: lead bytes E4 B8 … E9.
  return token.size() >= 3 && token.size() % 3 == 0 && replace_invalid_utf8(token) == token &&
         token[0] >= '\xE4' && token[0] <= '\xE9' && !(token[0] == '\xE4' && token[1] < '\xB8');
}

std::string english(const Tokenizer& tokenizer, size_t bytes) {
  const std::vector<std::string> vocabulary = tokens_where(tokenizer, is_english_word);
  if (vocabulary.empty()) return {};
  const Zipf words(vocabulary);
  std::mt19937 random(1);
  std::string text;
  while (text.size() < bytes) {
    for (size_t length = 4 + random() % 20; length > 0; --length) {
      text += words.draw(random);
      if (random() % 12 == 0) text += words.draw(random).substr(1);  // a rare word
      if (random() % 40 == 0) text += fmt::format(" {}", random() % 3000);
      if (random() % 11 == 0) text += ',';
    }
    text += random() % 6 == 0 ? ".\n\n" : ".";
  }
  return text;
}

std::string chinese(const Tokenizer& tokenizer, size_t bytes) {
  const std::vector<std::string> vocabulary = tokens_where(tokenizer, is_chinese_word);
  if (vocabulary.empty()) return {};
  const Zipf words(vocabulary);
  std::mt19937 random(2);
  std::string text;
  while (text.size() < bytes) {
    for (size_t length = 2 + random() % 10; length > 0; --length) text += words.draw(random);
    text += random() % 4 == 0 ? "。\n" : "，";
  }
  return text;
}

std::string code(const Tokenizer& tokenizer, size_t bytes) {
  const std::vector<std::string> vocabulary = tokens_where(tokenizer, is_english_word);
  if (vocabulary.empty()) return {};
  const Zipf words(vocabulary);
  std::mt19937 random(3);
  const auto word = [&] { return words.draw(random).substr(1); };
  std::string text;
  while (text.size() < bytes) {
    text += std::string(2 * (random() % 6), ' ');
    switch (random() % 4) {
      case 0:
        text += fmt::format("if ({}_{} != {}->{}) {{\n", word(), word(), word(), word());
        break;
      case 1:
        text += fmt::format("{}.{}({}, 0x{:x}, \"{} {}\");\n", word(), word(), word(), random(),
                            word(), word());
        break;
      case 2:
        text += fmt::format("// {} {} {} {}\n", word(), word(), word(), word());
        break;
      default:
        text += fmt::format("const auto {}{} = {}[{}] + {};\n", word(), random() % 9, word(),
                            word(), random() % 5000);
    }
  }
  return text;
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

struct Run {
  std::string name;
  std::string text;
  double required_mb_per_s;  // of the slower way
};

double measure(const Tokenizer& tokenizer, const std::string& text, std::vector<int32_t>& ids) {
  ids.clear();
  const double start = cpu_seconds();
  tokenizer.encode(text, SpecialTokens::kPlain, ids);
  return static_cast<double>(text.size()) / 1e6 / (cpu_seconds() - start);
}

struct Arguments {
  std::filesystem::path model;
  size_t megabytes = 50;
  std::filesystem::path write;
  std::vector<std::string> files;
};

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  const char* data = std::getenv("DEEPINFER_TEST_DATA");
  arguments.model = data != nullptr
                        ? std::filesystem::path(data) / "data/tokenizer-v41"
                        : std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag.starts_with("--") && i + 1 == argc) {
      fail(ErrorCode::kInvalidArgument, "{} needs a value", flag);
    }
    if (flag == "--model") {
      arguments.model = argv[++i];
    } else if (flag == "--megabytes") {
      arguments.megabytes = std::max<size_t>(std::strtoul(argv[++i], nullptr, 10), 1);
    } else if (flag == "--write") {
      arguments.write = argv[++i];
    } else {
      arguments.files.push_back(flag);
    }
  }
  return arguments;
}

void run(const Arguments& arguments) {
  const Tokenizer cached = Tokenizer::load(arguments.model);
  const double start = cpu_seconds();
  const Tokenizer uncached = Tokenizer::load(arguments.model, {.cache_pieces = 0});
  fmt::print("{} tokens loaded in {:.3f} s\n", uncached.vocab_size(), cpu_seconds() - start);
  const size_t bytes = arguments.megabytes * 1'000'000;
  const size_t hostile = std::min<size_t>(bytes, 8'000'000);
  std::vector<Run> runs = {{"english", english(cached, bytes), 5},
                           {"chinese", chinese(cached, bytes / 5), 5},
                           {"code", code(cached, bytes / 5), 5},
                           {"one letter", repeated("a", hostile), 3},
                           {"spaces", repeated(" ", hostile), 3},
                           {"newlines", repeated("\n", hostile), 3},
                           {"marks", repeated("\u0301", hostile), 3},
                           {"emoji joins", repeated("👩\u200d", hostile), 3},
                           {"digits", repeated("7", hostile), 3},
                           {"one letter, eighth", repeated("a", hostile / 8), 3}};
  for (const std::string& file : arguments.files) {
    runs.push_back({std::filesystem::path(file).filename(), read_file(file, int64_t{1} << 31), 5});
  }
  fmt::print("{:<18}{:>10}{:>12}{:>14}{:>14}{:>10}\n", "text", "MB", "ids", "cache MB/s",
             "none MB/s", "required");
  std::vector<int32_t> ids;
  for (const Run& r : runs) {
    if (r.text.empty()) {
      fmt::print("{:<18} not measured: the vocabulary has no words of it\n", r.name);
      continue;
    }
    const double without = measure(uncached, r.text, ids);
    const double with = measure(cached, r.text, ids);
    fmt::print("{:<18}{:>10.1f}{:>12}{:>14.1f}{:>14.1f}{:>10}\n", r.name,
               static_cast<double>(r.text.size()) / 1e6, ids.size(), with, without,
               r.name == "english" ? "20 and 5" : fmt::format("{}", r.required_mb_per_s));
    if (arguments.write.empty()) continue;
    FileWriter text_file(arguments.write / (r.name + ".txt"));
    text_file.write(r.text);
    text_file.commit();
    FileWriter ids_file(arguments.write / (r.name + ".ids"));
    ids_file.write(std::as_bytes(std::span(ids)));
    ids_file.commit();
  }
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  try {
    deepinfer::run(deepinfer::parse_arguments(argc, argv));
    return 0;
  } catch (const deepinfer::Error& error) {
    fmt::print(stderr, "tokenizer_bench: {}\n", error.what());
    return deepinfer::exit_code(error.code());
  }
}
