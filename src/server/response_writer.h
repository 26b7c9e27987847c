#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/api_request.h"
#include "server/choice.h"

namespace deepinfer::server {

/// Token counts of an answer.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  ///< Of the prompts: found in the cache instead of computed.
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
};

/// What every part of an answer repeats.
struct ResponseHead {
  std::string id = {};
  int64_t created_s = 0;  ///< Unix time.
  std::string model = {};
  std::string fingerprint = {};
};

/// Writes the body of an answer: events as they come, or one JSON object at the end. Used by one
/// thread. All members append to `out`.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual void begin(std::string& out) = 0;
  virtual void delta(const Choice& choice, ChoiceDelta delta, std::string& out) = 0;
  /// The choice has finished; its last delta has been written.
  virtual void finish(const Choice& choice, std::string& out) = 0;
  /// All choices have finished.
  virtual void end(const Usage& usage, std::string& out) = 0;
  /// Nothing follows. Streams: the error as an event. Else nothing: the error is the whole answer.
  virtual void error(const ApiError& error, std::string& out) = 0;
};

/// What a writer needs to know of its request.
struct WriterOptions {
  ResponseHead head = {};
  int64_t num_choices = 1;
  bool include_usage = false;
  bool logprobs = false;
  const Tokenizer* tokenizer = nullptr;
  std::vector<std::string> echo = {};  ///< Per choice: what its text begins with. Empty: nothing.
  std::string instructions = {};       ///< /v1/responses repeats them.
  double temperature = 1;
  double top_p = 1;
};

/// The writer of a route. `stream`: server-sent events.
std::unique_ptr<ResponseWriter> make_writer(Api api, bool stream, WriterOptions options);

/// A new identifier: `prefix` and 24 random hexadecimal digits. Any thread.
std::string make_id(std::string_view prefix);

}  // namespace deepinfer::server
