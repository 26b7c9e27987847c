#include "apps/interruption.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace deepinfer::apps {
namespace {

// A signal handler can reach nothing but globals. Relaxed order suffices: the event descriptor
// carries the news, and the number only says which signal it was.
std::atomic<int> g_signal{0};
std::atomic<int> g_event_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void signal_event(int fd) {
  const uint64_t one = 1;
  // An eventfd takes eight bytes at once; it fails only when its counter is full, and then it is
  // readable already.
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
}

void set_action(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

extern "C" void on_signal(int signal) {
  const int saved_errno = errno;
  g_signal.store(signal, std::memory_order_relaxed);
  set_action(SIG_DFL);
  signal_event(g_event_fd.load(std::memory_order_relaxed));
  errno = saved_errno;
}

int make_event() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) fail(ErrorCode::kResourceExhausted, "cannot make an eventfd: {}", strerror(errno));
  return fd;
}

}  // namespace

Interruption::Interruption() : event_fd_(make_event()), stop_fd_(make_event()) {
  g_signal.store(0, std::memory_order_relaxed);
  g_event_fd.store(event_fd_, std::memory_order_relaxed);
  watcher_ = std::thread([this] { wait(); });
  set_action(on_signal);
}

Interruption::~Interruption() {
  set_action(SIG_DFL);
  signal_event(stop_fd_);
  watcher_.join();
  ::close(event_fd_);
  ::close(stop_fd_);
}

bool Interruption::requested() const {
  return g_signal.load(std::memory_order_relaxed) != 0;
}

int Interruption::exit_code() const {
  return 128 + g_signal.load(std::memory_order_relaxed);
}

void Interruption::watch(OutputStream* stream) {
  const std::lock_guard lock(mutex_);
  watched_ = stream;
  if (watched_ != nullptr && requested()) watched_->cancel();
}

void Interruption::wait() {
  std::array<pollfd, 2> fds = {pollfd{event_fd_, POLLIN, 0}, pollfd{stop_fd_, POLLIN, 0}};
  while (::poll(fds.data(), fds.size(), -1) < 0 && errno == EINTR) {
  }
  if ((fds[0].revents & POLLIN) == 0) return;
  const std::lock_guard lock(mutex_);
  if (watched_ != nullptr) watched_->cancel();
}

}  // namespace deepinfer::apps
