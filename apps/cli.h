#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::apps {

/// Reads a whole decimal integer in [min, max]; `flag` names it in the kInvalidArgument error.
int64_t parse_integer(std::string_view flag, std::string_view text, int64_t min, int64_t max);
/// Reads a whole decimal integer in [0, 2^64).
uint64_t parse_unsigned(std::string_view flag, std::string_view text);
/// Reads a finite number that fits a float.
float parse_number(std::string_view flag, std::string_view text);
/// Reads token ids separated by commas: "1,2,3".
std::vector<int32_t> parse_token_ids(std::string_view flag, std::string_view text);

/// The flags of one sub-command. Values are checked where they are parsed, and every error is one
/// sentence that names the flag. The targets must outlive parse().
class Flags {
 public:
  using Setter = std::function<void(const std::string& text)>;

  /// `command` as typed ("generate"); `description` opens the help text.
  Flags(const std::string& command, const std::string& description);
  ~Flags();

  /// A flag with one value, handed to `set`. `type` names the value in the help ("FILE").
  /// `name` without leading dashes is a positional argument.
  void value(const std::string& name, const std::string& type, Setter set, const std::string& help);
  /// A flag that may be given several times.
  void repeated(const std::string& name, const std::string& type, std::vector<std::string>* target,
                const std::string& help);
  /// A flag without a value.
  void toggle(const std::string& name, bool* target, const std::string& help);
  void text(const std::string& name, const std::string& type, std::string* target,
            const std::string& help);
  void text(const std::string& name, const std::string& type, std::optional<std::string>* target,
            const std::string& help);
  /// A flag whose value names a file, "FILE", or a folder, "DIR": it must not be empty.
  void file(const std::string& name, const std::string& type, std::string* target,
            const std::string& help);
  void file(const std::string& name, const std::string& type, std::optional<std::string>* target,
            const std::string& help);
  void integer(const std::string& name, int64_t* target, int64_t min, const std::string& help,
               int64_t max = std::numeric_limits<int64_t>::max());
  void integer(const std::string& name, std::optional<int64_t>* target, int64_t min,
               const std::string& help);

  /// Makes flags that were declared before mandatory.
  void require(const std::string& name);
  /// Exactly one of these must be given. Once per sub-command.
  void one_of(const std::vector<std::string>& names);

  /// Whether a flag was given; after parse().
  bool given(const std::string& name) const;

  /// Sets the targets. Prints the help and returns false for --help. Errors: kInvalidArgument.
  bool parse(std::span<const std::string> arguments);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::apps
