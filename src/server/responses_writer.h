#pragma once

#include <memory>

#include "server/response_writer.h"

namespace deepinfer::server {

/// The writer of /v1/responses: an object "response" with items of output, or the events that build
/// it up. One choice.
std::unique_ptr<ResponseWriter> make_responses_writer(bool stream, WriterOptions options);

}  // namespace deepinfer::server
