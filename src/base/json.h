#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace deepinfer {

/// JSON values keep the order of their keys. Include <nlohmann/json.hpp> in the .cc that looks
/// inside.
using Json = nlohmann::ordered_json;

/// Parses one JSON text from outside. `source` names it in errors (a path, "line 3 of FILE",
/// "request body"). Errors: kInvalidFile when it is not valid JSON, has a duplicate key, invalid
/// UTF-8, or nests deeper than `max_depth`. Never recurses, so no input can exhaust the stack.
Json parse_json(std::string_view text, std::string_view source, int max_depth = 64);

/// Reads and parses a JSON file. Errors: those of read_file and parse_json.
Json read_json_file(const std::filesystem::path& path, int64_t max_bytes, int max_depth = 64);

}  // namespace deepinfer
