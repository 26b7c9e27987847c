#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api_request.h"
#include "server/field_value.h"

namespace deepinfer::server {

/// What happens to a field of a request's body. Whatever is in no table is refused as unknown; null
/// counts as absent everywhere.
enum class Support : uint8_t {
  kYes,
  kFixed,     ///< Accepted with the values that change nothing, else refused by name.
  kNoEffect,  ///< Accepted; says nothing about the answer.
  kNo,        ///< Refused by name.
};

/// One row of the table that both parses requests and is printed in docs/api.md.
struct Field {
  std::string_view name;
  Support support;
  std::string_view note;  ///< Values and meaning; kNo: why, or what instead.
  void (*read)(ApiRequest&, const FieldValue&) = nullptr;  ///< kYes.
  std::string_view fixed = {};  ///< kFixed: the accepted values as JSON, " | " between.
};

std::span<const Field> fields_of(Api api);

/// The path of a route: "/v1/chat/completions".
std::string_view path_of(Api api);

/// The table of a route in Markdown, as docs/api.md has it.
std::string markdown_table(Api api);

}  // namespace deepinfer::server
