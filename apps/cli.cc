#include "apps/cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/output.h"
#include "base/error.h"

namespace deepinfer::apps {
namespace {

/// The whole of `text` as a T, or nothing.
template <typename T>
std::optional<T> from_text(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string file_name(std::string_view flag, const std::string& text) {
  if (text.empty()) fail(ErrorCode::kInvalidArgument, "{}: the name is empty", flag);
  return text;
}

}  // namespace

int64_t parse_integer(std::string_view flag, std::string_view text, int64_t min, int64_t max) {
  const std::optional<int64_t> value = from_text<int64_t>(text);
  if (!value || *value < min || *value > max) {
    if (max == std::numeric_limits<int64_t>::max()) {
      fail(ErrorCode::kInvalidArgument, "{}: \"{}\" is not an integer of at least {}", flag, text,
           min);
    }
    fail(ErrorCode::kInvalidArgument, "{}: \"{}\" is not an integer from {} to {}", flag, text, min,
         max);
  }
  return *value;
}

uint64_t parse_unsigned(std::string_view flag, std::string_view text) {
  const std::optional<uint64_t> value = from_text<uint64_t>(text);
  if (!value) {
    fail(ErrorCode::kInvalidArgument, "{}: \"{}\" is not an integer from 0 to 2^64 - 1", flag,
         text);
  }
  return *value;
}

float parse_number(std::string_view flag, std::string_view text) {
  float value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (end != last || error == std::errc::invalid_argument || std::isnan(value)) {
    fail(ErrorCode::kInvalidArgument, "{}: \"{}\" is not a number", flag, text);
  }
  if (error == std::errc::result_out_of_range || std::isinf(value)) {
    fail(ErrorCode::kInvalidArgument, "{}: \"{}\" is out of the range of a float", flag, text);
  }
  return value;
}

std::vector<int32_t> parse_token_ids(std::string_view flag, std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int32_t> id = from_text<int32_t>(text.substr(begin, end - begin));
    if (!id || *id < 0) {
      fail(ErrorCode::kInvalidArgument,
           "{}: entry {} (\"{}\") is not a token id; ids are integers separated by commas", flag,
           ids.size(), text.substr(begin, end - begin));
    }
    ids.push_back(*id);
    begin = end + 1;
  }
  return ids;
}

struct Flags::Impl {
  Impl(const std::string& command, const std::string& description)
      : command(command), app(description, "deepinfer " + command) {}

  std::string command;
  CLI::App app;
};

Flags::Flags(const std::string& command, const std::string& description)
    : impl_(std::make_unique<Impl>(command, description)) {
  // The formatter's default column is too narrow for "--repetition-penalty NUMBER".
  impl_->app.get_formatter()->column_width(34);
}

Flags::~Flags() = default;

void Flags::value(const std::string& name, const std::string& type, Setter set,
                  const std::string& help) {
  impl_->app
      .add_option(
          name,
          [set = std::move(set)](const CLI::results_t& results) {
            set(results.front());
            return true;
          },
          help)
      ->type_name(type)
      ->expected(1);
}

void Flags::repeated(const std::string& name, const std::string& type,
                     std::vector<std::string>* target, const std::string& help) {
  // One value per occurrence, taken literally: CLI11 would split "[a,b]" if it allowed more.
  impl_->app
      .add_option(
          name,
          [target](const CLI::results_t& results) {
            *target = results;
            return true;
          },
          help)
      ->type_name(type)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Flags::toggle(const std::string& name, bool* target, const std::string& help) {
  impl_->app.add_flag(name, *target, help);
}

void Flags::text(const std::string& name, const std::string& type, std::string* target,
                 const std::string& help) {
  value(name, type, [target](const std::string& text) { *target = text; }, help);
}

void Flags::text(const std::string& name, const std::string& type,
                 std::optional<std::string>* target, const std::string& help) {
  value(name, type, [target](const std::string& text) { *target = text; }, help);
}

void Flags::file(const std::string& name, const std::string& type, std::string* target,
                 const std::string& help) {
  value(
      name, type, [target, name](const std::string& text) { *target = file_name(name, text); },
      help);
}

void Flags::file(const std::string& name, const std::string& type,
                 std::optional<std::string>* target, const std::string& help) {
  value(
      name, type, [target, name](const std::string& text) { *target = file_name(name, text); },
      help);
}

void Flags::integer(const std::string& name, int64_t* target, int64_t min, const std::string& help,
                    int64_t max) {
  value(
      name, "N", [=](const std::string& text) { *target = parse_integer(name, text, min, max); },
      help);
}

void Flags::integer(const std::string& name, std::optional<int64_t>* target, int64_t min,
                    const std::string& help) {
  value(
      name, "N",
      [=](const std::string& text) {
        *target = parse_integer(name, text, min, std::numeric_limits<int64_t>::max());
      },
      help);
}

void Flags::require(const std::string& name) {
  impl_->app.get_option(name)->required();
}

void Flags::one_of(const std::vector<std::string>& names) {
  impl_->app.callback([this, names] {
    std::string list;
    int num_given = 0;
    for (const std::string& name : names) {
      list += (list.empty() ? "" : ", ") + name;
      num_given += given(name) ? 1 : 0;
    }
    if (num_given != 1) throw CLI::ValidationError("exactly one of " + list + " must be given");
  });
}

bool Flags::given(const std::string& name) const {
  return impl_->app.get_option(name)->count() > 0;
}

bool Flags::parse(std::span<const std::string> arguments) {
  try {
    // CLI11 takes them from the back.
    impl_->app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    Output().write(impl_->app.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    fail(ErrorCode::kInvalidArgument, "{}: not expected: {} (see deepinfer {} --help)",
         impl_->command, fmt::join(impl_->app.remaining(), " "), impl_->command);
  } catch (const CLI::Error& error) {
    fail(ErrorCode::kInvalidArgument, "{}: {} (see deepinfer {} --help)", impl_->command,
         error.what(), impl_->command);
  }
  return true;
}

}  // namespace deepinfer::apps
