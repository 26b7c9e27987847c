#include "server/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(200);  // how exact timeouts are
constexpr auto kLinger = std::chrono::seconds(3);       // reading on after an early answer
constexpr size_t kLingerBytes = size_t{512} << 20;
constexpr size_t kPipelinedBytes = size_t{64} << 10;  // read ahead while an answer runs
constexpr size_t kFreeBodyBytes = size_t{64} << 10;   // bodies that small need no budget

class Connection;

}  // namespace

struct HttpServer::Impl {
  Impl(Engine& the_engine, Service& the_service, const HttpOptions& the_options);
  ~Impl() { engine.set_output_listener({}); }

  awaitable<void> accept_loop();
  awaitable<void> tick_loop();
  void pump_active();
  void drain();

  Engine& engine;
  Service& service;
  HttpOptions options;
  Metrics metrics;
  int64_t pending_body_bytes = 0;
  bool draining = false;
  // Set by the engine's thread when a pump is on its way, cleared before it looks: a delta that
  // comes after the clearing posts another one. Sequentially consistent, being once per step.
  std::atomic<bool> pump_posted = false;

  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::vector<std::shared_ptr<Connection>> active;  // with an answer in the making
  asio::thread_pool workers;  // last: joined before anything that it uses goes away
};

namespace {

/// One client. All members: the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer::Impl& server, tcp::socket socket)
      : server_(server), socket_(std::move(socket)), woken_(socket_.get_executor()) {
    woken_.expires_at(asio::steady_timer::time_point::max());
    buffer_.max_size(static_cast<size_t>(server.options.max_header_bytes) + kPipelinedBytes);
  }

  /// Answers requests one after the other until somebody closes.
  awaitable<void> run();
  /// Writes what has become of the answer in the making. False when it is complete or dropped.
  bool pump(Clock::time_point now);
  /// Ends what is overdue.
  void tick(Clock::time_point now);
  /// Closes; what the client asked for is cancelled.
  void close();
  bool idle() const { return idle_; }
  void refuse_as_full();

 private:
  using Parser = http::request_parser<http::string_body>;
  struct BodyBudget;

  awaitable<bool> serve_one();
  awaitable<bool> read_head(Parser& parser);
  awaitable<bool> read_body(Parser& parser, BodyBudget& budget);
  std::optional<ApiError> head_error(error_code error) const;
  std::optional<ApiError> protocol_error(error_code error) const;
  std::optional<ApiError> body_error(const Parser& parser, BodyBudget& budget) const;
  int64_t body_bytes(const Parser& parser) const;
  awaitable<bool> refuse(ApiError error);
  awaitable<bool> answer(Reply reply, bool keep_alive);
  awaitable<void> run_generation();
  awaitable<void> wait();
  awaitable<void> flushed();
  awaitable<void> linger();
  awaitable<Reply> handle(HttpRequest request, Clock::time_point arrival);

  HttpHead head_of(const Reply& reply, bool keep_alive) const;
  void set_deadline(std::chrono::milliseconds timeout) { deadline_ = Clock::now() + timeout; }
  void finish_answer(Reply reply);
  void send(std::string_view bytes);
  void flush();
  void watch_client();
  void wake() { woken_.cancel(); }

  HttpServer::Impl& server_;
  tcp::socket socket_;
  beast::flat_buffer buffer_;                              // read and not yet used
  asio::steady_timer woken_;                               // cancelled to resume the coroutine
  Clock::time_point deadline_ = Clock::time_point::max();  // of reading
  Clock::time_point write_deadline_ = Clock::time_point::max();
  Clock::time_point last_sent_ = {};
  std::string outgoing_;  // to be written after
  std::string writing_;   // being written; empty: nothing is
  bool closed_ = false;
  bool timed_out_ = false;
  bool idle_ = false;      // between requests
  bool watching_ = false;  // reads ahead, to learn that the client left
  bool http_1_0_ = false;
  bool head_only_ = false;
  bool keep_alive_ = true;  // of the answer in the making
  std::unique_ptr<Generation> generation_;
};

/// Memory that a body may take while it is read.
struct Connection::BodyBudget {
  explicit BodyBudget(int64_t& the_pending) : pending(the_pending) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;
  ~BodyBudget() { pending -= bytes; }
  bool take(int64_t wanted, int64_t limit) {
    if (pending + wanted > limit) return false;
    pending += wanted;
    bytes += wanted;
    return true;
  }

  int64_t& pending;
  int64_t bytes = 0;
};

awaitable<void> Connection::run() {
  const std::shared_ptr<Connection> self = shared_from_this();
  try {
    while (!closed_ && co_await serve_one()) {
    }
  } catch (const std::exception& error) {
    log(LogLevel::kError, "a connection ends: {}", error.what());
  }
  close();
  server_.connections.erase(self);
  server_.metrics.connections = static_cast<int64_t>(server_.connections.size());
}

awaitable<bool> Connection::serve_one() {
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(server_.options.max_header_bytes));
  parser.body_limit(static_cast<uint64_t>(server_.service.options().limits.max_body_bytes));
  if (!co_await read_head(parser)) co_return false;

  const auto& message = parser.get();
  const std::string_view target(message.target().data(), message.target().size());
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = std::string(target.substr(0, target.find('?')));
  for (auto [at, end] = message.equal_range(http::field::authorization); at != end; ++at) {
    ++request.num_authorizations;
    request.authorization = std::string(at->value());
  }
  http_1_0_ = message.version() == 10;
  head_only_ = message.method() == http::verb::head;
  if (std::optional<Reply> refusal = server_.service.refuse(request)) {
    // The body, if there is one, is not read: what follows it cannot be found.
    const bool go_on = parser.is_done() && message.keep_alive();
    co_return co_await answer(std::move(*refusal), go_on);
  }
  BodyBudget budget(server_.pending_body_bytes);
  if (!co_await read_body(parser, budget)) co_return false;
  const Clock::time_point arrival = Clock::now();
  const bool keep_alive = message.keep_alive();
  request.body = std::move(parser.get().body());
  Reply reply = co_await handle(std::move(request), arrival);
  co_return co_await answer(std::move(reply), keep_alive);
}

awaitable<bool> Connection::read_head(Parser& parser) {
  error_code error;
  if (buffer_.size() == 0) {
    idle_ = true;
    set_deadline(server_.options.idle_timeout);
    co_await socket_.async_wait(tcp::socket::wait_read, asio::redirect_error(use_awaitable, error));
    idle_ = false;
    if (error || timed_out_) co_return false;
  }
  set_deadline(server_.options.header_timeout);
  co_await http::async_read_header(socket_, buffer_, parser,
                                   asio::redirect_error(use_awaitable, error));
  deadline_ = Clock::time_point::max();
  const std::optional<ApiError> refusal = head_error(error);
  if (refusal) co_return co_await refuse(*refusal);
  co_return !error;
}

std::optional<ApiError> Connection::head_error(error_code error) const {
  if (timed_out_) return ApiError(408, "the request's head came too slowly");
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return ApiError(
        431, fmt::format("the head is longer than {} bytes", server_.options.max_header_bytes));
  }
  if (error == http::error::bad_version) return ApiError(505, "expected HTTP/1.0 or HTTP/1.1");
  return protocol_error(error);
}

/// What is wrong with a request's bytes; nothing if the client has merely gone.
std::optional<ApiError> Connection::protocol_error(error_code error) const {
  if (error == http::error::body_limit) {
    return ApiError(413, fmt::format("the body is longer than {} bytes",
                                     server_.service.options().limits.max_body_bytes));
  }
  const bool of_http = error.category() == make_error_code(http::error::bad_method).category();
  if (!error || !of_http || error == http::error::end_of_stream ||
      error == http::error::partial_message) {
    return {};
  }
  return ApiError(400, fmt::format("not valid HTTP: {}", error.message()));
}

/// What must be right before a body is read; takes the memory for it.
std::optional<ApiError> Connection::body_error(const Parser& parser, BodyBudget& budget) const {
  const auto& message = parser.get();
  const int64_t max_bytes = server_.service.options().limits.max_body_bytes;
  const std::string_view type(message[http::field::content_type].data(),
                              message[http::field::content_type].size());
  if (!type.empty() &&
      !beast::iequals(type.substr(0, type.find_first_of("; ")), "application/json")) {
    return ApiError(415, "expected the header \"Content-Type: application/json\"");
  }
  const int64_t bytes = body_bytes(parser);
  if (bytes > static_cast<int64_t>(kFreeBodyBytes) &&
      !budget.take(bytes, std::max(server_.options.max_pending_body_bytes, max_bytes))) {
    return ApiError(503, "the server reads too many large requests already");
  }
  const auto expect = message[http::field::expect];
  if (!expect.empty() && !beast::iequals(expect, "100-continue")) {
    return ApiError(417, "expected no expectation but 100-continue");
  }
  return {};
}

/// The body's length, or the most that it may have.
int64_t Connection::body_bytes(const Parser& parser) const {
  const auto length = parser.content_length();
  return length ? static_cast<int64_t>(*length) : server_.service.options().limits.max_body_bytes;
}

awaitable<bool> Connection::read_body(Parser& parser, BodyBudget& budget) {
  if (parser.is_done()) co_return true;
  const std::optional<ApiError> refusal = body_error(parser, budget);
  if (refusal) co_return co_await refuse(*refusal);
  if (!parser.get()[http::field::expect].empty() && !http_1_0_) {
    send("HTTP/1.1 100 Continue\r\n\r\n");
    co_await flushed();
  }
  error_code error;
  // A second per 100,000 bytes.
  set_deadline(server_.options.body_timeout + std::chrono::milliseconds(body_bytes(parser) / 100));
  co_await http::async_read(socket_, buffer_, parser, asio::redirect_error(use_awaitable, error));
  deadline_ = Clock::time_point::max();
  const std::optional<ApiError> fault =
      timed_out_ ? std::optional(ApiError(408, "the request's body came too slowly"))
                 : protocol_error(error);
  if (fault) co_return co_await refuse(*fault);
  co_return !error;
}

awaitable<Reply> Connection::handle(HttpRequest request, Clock::time_point arrival) {
  Service& service = server_.service;
  const Metrics& metrics = server_.metrics;
  if (!Service::is_slow(request)) co_return service.handle(request, arrival, metrics);
  // A named object: GCC 12 destroys the captures of a temporary inside co_await twice.
  auto work = [&service, &metrics, &request, arrival]() -> awaitable<Reply> {
    co_return service.handle(request, arrival, metrics);
  };
  co_return co_await asio::co_spawn(server_.workers, std::move(work), use_awaitable);
}

HttpHead Connection::head_of(const Reply& reply, bool keep_alive) const {
  HttpHead head{.status = reply.status,
                .content_type = reply.content_type,
                .headers = reply.headers,
                .content_length = static_cast<int64_t>(reply.body.size()),
                .keep_alive = keep_alive,
                .http_1_0 = http_1_0_};
  const std::string& origin = server_.service.options().cors_origin;
  if (!origin.empty()) head.headers.emplace_back("Access-Control-Allow-Origin", origin);
  return head;
}

/// Answers a request whose rest is not read, and reads on for a while so that the client gets the
/// answer and no reset.
awaitable<bool> Connection::refuse(ApiError error) {
  timed_out_ = false;
  Reply reply = server_.service.error_reply(error);
  co_await answer(std::move(reply), false);
  co_return false;
}

awaitable<bool> Connection::answer(Reply reply, bool keep_alive) {
  // A client that left while its prompt was tokenized: dropping the reply cancels what it began.
  if (closed_) co_return false;
  keep_alive_ = keep_alive && !server_.draining;
  if (reply.generation) {
    generation_ = std::move(reply.generation);
    if (generation_->stream()) {
      ++server_.metrics.responses[reply.status];
      reply.headers.emplace_back("Cache-Control", "no-cache");
      HttpHead head = head_of(reply, keep_alive_ && !http_1_0_);
      head.content_length = -1;
      keep_alive_ = head.keep_alive;
      last_sent_ = Clock::now();
      send(to_bytes(head));
    }
    co_await run_generation();
  } else {
    finish_answer(std::move(reply));
  }
  co_await flushed();
  if (!keep_alive_ && !closed_) co_await linger();
  co_return keep_alive_ && !closed_ && !server_.draining;
}

/// Sends a complete answer.
void Connection::finish_answer(Reply reply) {
  ++server_.metrics.responses[reply.status];
  send(to_bytes(head_of(reply, keep_alive_)));
  if (!head_only_) send(reply.body);
}

awaitable<void> Connection::run_generation() {
  watch_client();
  if (pump(Clock::now())) server_.active.push_back(shared_from_this());
  while (generation_ && !closed_) co_await wait();
  co_await flushed();
  if (!watching_ || closed_) co_return;
  socket_.cancel();  // the read-ahead is the only operation left
  while (watching_) co_await wait();
}

bool Connection::pump(Clock::time_point now) {
  if (!generation_ || closed_) return false;
  // What earlier looks left behind a write that does not end.
  if (generation_->stream() &&
      std::cmp_greater(outgoing_.size(), server_.options.max_unsent_bytes)) {
    log_warning("a client reads too slowly and is cut off");
    close();
    return false;
  }
  std::string body;
  const bool complete = generation_->advance(now, server_.metrics, body);
  if (generation_->stream()) {
    if (http_1_0_) {
      send(body);
    } else {
      append_chunk(outgoing_, body);
      if (complete) outgoing_ += kLastChunk;
      flush();
    }
    if (!body.empty()) last_sent_ = now;
  } else if (complete) {
    const auto& error = generation_->error();
    finish_answer(error ? server_.service.error_reply(*error) : Reply{.body = std::move(body)});
  }
  if (!complete) return true;
  generation_.reset();
  wake();
  return false;
}

void Connection::tick(Clock::time_point now) {
  if (closed_) return;
  if (now > write_deadline_) {
    close();
  } else if (now > deadline_) {
    deadline_ = Clock::time_point::max();
    timed_out_ = true;
    socket_.cancel();
  } else if (generation_ && generation_->stream() && writing_.empty() &&
             now - last_sent_ > server_.options.silence) {
    // Proxies drop connections that say nothing while a long prompt is computed.
    last_sent_ = now;
    if (http_1_0_) {
      send(": still running\n\n");
    } else {
      append_chunk(outgoing_, ": still running\n\n");
      flush();
    }
  }
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  if (generation_) generation_->abandon(server_.metrics);
  generation_.reset();
  error_code ignored;
  socket_.close(ignored);
  wake();
}

void Connection::refuse_as_full() {
  const Reply reply =
      server_.service.error_reply(ApiError(503, "the server has no connection left"));
  const std::string bytes = to_bytes(head_of(reply, false)) + reply.body;
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.write_some(asio::buffer(bytes), ignored);
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  closed_ = true;
}

void Connection::send(std::string_view bytes) {
  outgoing_ += bytes;
  flush();
}

void Connection::flush() {
  if (closed_ || !writing_.empty() || outgoing_.empty()) return;
  std::swap(writing_, outgoing_);
  write_deadline_ = Clock::now() + server_.options.write_timeout;
  asio::async_write(socket_, asio::buffer(writing_),
                    [self = shared_from_this()](error_code error, size_t) {
                      self->writing_.clear();
                      self->write_deadline_ = Clock::time_point::max();
                      if (error) {
                        self->close();
                      } else if (self->outgoing_.empty()) {
                        self->wake();
                      } else {
                        self->flush();
                      }
                    });
}

/// Reads ahead while an answer is in the making: pipelined requests are kept, and a client that
/// closes, or half-closes, is noticed at once.
void Connection::watch_client() {
  if (watching_ || closed_ || buffer_.size() >= kPipelinedBytes) return;
  constexpr size_t kBytes = 4096;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kBytes),
                          [self = shared_from_this()](error_code error, size_t bytes) {
                            self->watching_ = false;
                            self->buffer_.commit(bytes);
                            if (error && error != asio::error::operation_aborted) {
                              self->close();
                            } else if (!error && self->generation_) {
                              self->watch_client();
                            }
                            self->wake();
                          });
}

awaitable<void> Connection::wait() {
  error_code cancelled;
  co_await woken_.async_wait(asio::redirect_error(use_awaitable, cancelled));
}

awaitable<void> Connection::flushed() {
  while (!closed_ && !(writing_.empty() && outgoing_.empty())) co_await wait();
}

awaitable<void> Connection::linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  set_deadline(kLinger);
  std::vector<char> scratch(size_t{64} << 10);
  for (size_t total = 0; !error && !timed_out_ && total < kLingerBytes;) {
    total += co_await socket_.async_read_some(asio::buffer(scratch),
                                              asio::redirect_error(use_awaitable, error));
  }
  deadline_ = Clock::time_point::max();
}

/// Lets as many files be open as the system allows.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

tcp::endpoint resolve(asio::io_context& io, const HttpOptions& options) {
  error_code error;
  const auto port = static_cast<uint16_t>(options.port);
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (!error) return {address, port};
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, std::to_string(port), error);
  if (error || found.empty()) {
    fail(ErrorCode::kInvalidArgument, "host is \"{}\", expected an address of this machine: {}",
         options.host, error.message());
  }
  return found.begin()->endpoint();
}

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, expected {} to {}", field, value, low, high);
  }
}

}  // namespace

void HttpOptions::validate() const {
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  check_range("port", port, 0, 65535);
  check_range("workers", workers, 1, 256);
  check_range("max_connections", max_connections, 1, 1 << 20);
  check_range("max_header_bytes", max_header_bytes, 1024, 1 << 24);
  check_range("max_unsent_bytes", max_unsent_bytes, 4096, kMaxBytes);
  check_range("max_pending_body_bytes", max_pending_body_bytes, 0, kMaxBytes);
  for (const auto& [field, timeout] :
       {std::pair("header_timeout", header_timeout), std::pair("body_timeout", body_timeout),
        std::pair("idle_timeout", idle_timeout), std::pair("write_timeout", write_timeout),
        std::pair("silence", silence)}) {
    check_range(field, timeout.count(), 1, 86'400'000);
  }
}

HttpServer::Impl::Impl(Engine& the_engine, Service& the_service, const HttpOptions& the_options)
    : engine(the_engine),
      service(the_service),
      options(the_options),
      workers(static_cast<size_t>(the_options.workers)) {
  raise_file_limit();
  const tcp::endpoint endpoint = resolve(io, options);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    fail(ErrorCode::kIo, "cannot listen on {}:{}: {}", options.host, options.port, error.message());
  }
  asio::co_spawn(io, accept_loop(), asio::detached);
  asio::co_spawn(io, tick_loop(), asio::detached);
  engine.set_output_listener([this] {
    if (pump_posted.exchange(true)) return;
    asio::post(io, [this] {
      pump_posted = false;
      pump_active();
    });
  });
}

awaitable<void> HttpServer::Impl::accept_loop() {
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(use_awaitable, error));
    if (error) {
      // Out of descriptors, most likely: wait for a connection to end.
      asio::steady_timer pause(io, kTick);
      co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
      continue;
    }
    socket.set_option(tcp::no_delay(true), error);
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    if (std::cmp_greater_equal(connections.size(), options.max_connections)) {
      connection->refuse_as_full();
      continue;
    }
    connections.insert(connection);
    metrics.connections = static_cast<int64_t>(connections.size());
    asio::co_spawn(io, connection->run(), asio::detached);
  }
}

awaitable<void> HttpServer::Impl::tick_loop() {
  asio::steady_timer timer(io);
  while (true) {
    timer.expires_after(kTick);
    co_await timer.async_wait(use_awaitable);
    const Clock::time_point now = Clock::now();
    const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
    for (const std::shared_ptr<Connection>& connection : all) connection->tick(now);
    if (draining && connections.empty()) io.stop();
  }
}

void HttpServer::Impl::pump_active() {
  const Clock::time_point now = Clock::now();
  // Connections neither join nor leave the list while they write.
  std::erase_if(active, [now](const std::shared_ptr<Connection>& connection) {
    return !connection->pump(now);
  });
}

void HttpServer::Impl::drain() {
  draining = true;
  service.drain();
  error_code ignored;
  acceptor.close(ignored);
  const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
  for (const std::shared_ptr<Connection>& connection : all) {
    if (connection->idle()) connection->close();
  }
}

HttpServer::HttpServer(Engine& engine, Service& service, const HttpOptions& options) {
  options.validate();
  impl_ = std::make_unique<Impl>(engine, service, options);
}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const {
  return impl_->acceptor.local_endpoint().port();
}

void HttpServer::run() {
  while (true) {
    try {
      impl_->io.run();
      return;
    } catch (const std::exception& error) {
      log(LogLevel::kError, "the server goes on after: {}", error.what());
    }
  }
}

void HttpServer::drain() {
  asio::post(impl_->io, [this] { impl_->drain(); });
}

void HttpServer::stop() {
  impl_->io.stop();
}

}  // namespace deepinfer::server
