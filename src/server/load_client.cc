#include "server/load_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/json_value.h"

namespace deepinfer::server {
namespace {

using Clock = std::chrono::steady_clock;
using text::JsonValue;

struct AddressList {
  explicit AddressList(const LoadOptions& options) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    const int status = ::getaddrinfo(options.host.c_str(), options.port.c_str(), &wanted, &first);
    if (status != 0) {
      fail(ErrorCode::kNotFound, "{}:{}: {}", options.host, options.port, ::gai_strerror(status));
    }
  }
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  ~AddressList() { ::freeaddrinfo(first); }

  addrinfo* first = nullptr;
};

int64_t member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  int64_t number = 0;
  if (value != nullptr) {
    std::from_chars(value->text.data(), value->text.data() + value->text.size(), number);
  }
  return number;
}

/// Whether an event brings a part of an answer, of a completion or of a chat.
bool has_text(const JsonValue& event) {
  const JsonValue* choices = event.find("choices");
  if (choices == nullptr || choices->values.empty()) return false;
  const JsonValue& choice = choices->values.front();
  const JsonValue* delta = choice.find("delta");
  for (const char* name : {"text", "content", "reasoning_content", "reasoning"}) {
    const JsonValue* text = (delta == nullptr ? choice : *delta).find(name);
    if (text != nullptr && !text->text.empty()) return true;
  }
  return false;
}

/// One request on its way.
class Exchange {
 public:
  Exchange(const LoadOptions& options, const addrinfo& address, const LoadRequest& request,
           LoadResult& result, Clock::time_point begin)
      : result_(result), begin_(Clock::now()) {
    result_.start_s = seconds(begin_ - begin);
    outgoing_ = fmt::format(
        "POST {} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\nConnection: close\r\n"
        "Content-Length: {}\r\n\r\n{}",
        options.path, options.host,
        options.api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", options.api_key),
        request.body.size(), request.body);
    fd_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) fail(ErrorCode::kResourceExhausted, "no more sockets: {}", strerror(errno));
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (::connect(fd_, address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
      end(strerror(errno));
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    if (fd_ >= 0) ::close(fd_);
  }

  bool done() const { return done_; }
  pollfd wanted() const {
    return {fd_, static_cast<short>(outgoing_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  }

  void work() {
    if (!outgoing_.empty()) {
      const ssize_t sent = ::send(fd_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
      if (sent > 0) outgoing_.erase(0, static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return end(strerror(errno));
    }
    std::array<char, 65536> bytes;
    while (!done_) {
      const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (got < 0) {
        if (errno != EAGAIN && errno != EINTR) end(strerror(errno));
        return;
      }
      if (got == 0) return end(complete_ ? "" : "the stream ended before its end");
      take(std::string_view(bytes.data(), static_cast<size_t>(got)));
    }
  }
  void end(std::string_view error) {
    done_ = true;
    result_.end_s = seconds(Clock::now() - begin_);
    if (result_.error.empty()) result_.error = error;
    result_.ok = result_.error.empty();
  }

 private:
  static double seconds(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  }

  void take(std::string_view bytes) {
    buffer_ += bytes;
    if (!head_read_) {
      const size_t head_end = buffer_.find("\r\n\r\n");
      if (head_end == std::string::npos) return;
      head_read_ = true;
      if (!buffer_.starts_with("HTTP/1.1 200")) {
        return end("answered with " + buffer_.substr(0, std::min<size_t>(12, buffer_.find('\r'))));
      }
      buffer_.erase(0, head_end + 4);
    }
    take_events();
  }

  /// Lines "data: …", whatever chunk sizes stand between them: an event is written as a whole.
  void take_events() {
    constexpr std::string_view kData = "data: ";
    size_t used = 0;
    while (true) {
      const size_t end_of_line = buffer_.find('\n', used);
      if (end_of_line == std::string::npos) break;
      const std::string_view line(buffer_.data() + used, end_of_line - used);
      used = end_of_line + 1;
      if (line.starts_with(kData)) take_event(line.substr(kData.size()));
    }
    buffer_.erase(0, used);
  }

  void take_event(std::string_view data) {
    if (data == "[DONE]") {
      complete_ = true;
      return;
    }
    bool brings_text = false;
    try {
      const JsonValue event = text::parse_json_value(data, "an event");
      if (event.find("error") != nullptr) result_.error = std::string(data.substr(0, 300));
      const JsonValue* usage = event.find("usage");
      if (usage != nullptr && usage->is(JsonValue::Kind::kObject)) {
        result_.prompt_tokens = member(*usage, "prompt_tokens");
        result_.completion_tokens = member(*usage, "completion_tokens");
        const JsonValue* details = usage->find("prompt_tokens_details");
        if (details != nullptr) result_.cached_tokens = member(*details, "cached_tokens");
      }
      brings_text = has_text(event);
    } catch (const Error& error) {
      result_.error = error.what();
      return;
    }
    if (!brings_text) return;  // the event that ends a choice, or the one with the usage
    const Clock::time_point now = Clock::now();
    if (!last_) {
      result_.first_s = seconds(now - begin_);
    } else if (now - *last_ > std::chrono::microseconds(20)) {
      result_.gaps_s.push_back(seconds(now - *last_));  // else: written together
    }
    last_ = now;
  }

  LoadResult& result_;
  Clock::time_point begin_;
  int fd_ = -1;
  std::string outgoing_;
  std::string buffer_;
  bool head_read_ = false;
  bool complete_ = false;
  bool done_ = false;
  std::optional<Clock::time_point> last_;
};

}  // namespace

std::vector<LoadResult> run_load(const LoadOptions& options,
                                 const std::vector<LoadRequest>& requests,
                                 const std::function<bool()>& stop) {
  constexpr int kPatienceMs = 50;
  const AddressList addresses(options);
  std::vector<LoadResult> results(requests.size());
  std::vector<std::unique_ptr<Exchange>> running;
  std::vector<pollfd> fds;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_start = begin;
  for (size_t next = 0; (next < requests.size() || !running.empty()) && !stop();) {
    const Clock::time_point now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - begin).count();
    while (next < requests.size() && std::cmp_less(running.size(), options.concurrency) &&
           requests[next].start_s <= elapsed) {
      running.push_back(std::make_unique<Exchange>(options, *addresses.first, requests[next],
                                                   results[next], begin));
      last_start = now;
      ++next;
    }
    fds.clear();
    for (const std::unique_ptr<Exchange>& exchange : running) fds.push_back(exchange->wanted());
    // Requests that are due soon shorten the wait to that of the shortest timeout.
    const bool due_soon = next < requests.size() && requests[next].start_s - elapsed < 0.05;
    ::poll(fds.data(), fds.size(), due_soon ? 1 : kPatienceMs);
    const bool late = std::chrono::duration<double>(now - last_start).count() > options.timeout_s;
    for (size_t i = 0; i < running.size(); ++i) {
      if (fds[i].revents != 0 && !running[i]->done()) running[i]->work();
      if (late && !running[i]->done()) running[i]->end("not finished in time");
    }
    std::erase_if(running, [](const auto& exchange) { return exchange->done(); });
  }
  for (LoadResult& result : results) {
    if (!result.ok && result.error.empty()) result.error = "given up";
  }
  return results;
}

}  // namespace deepinfer::server
