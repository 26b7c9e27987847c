#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace deepinfer::cpu {

/// Scratch memory of operations: a stack of 64-byte aligned pieces that is given back as a whole
/// when an operation ends. It grows to what the largest step needs and allocates nothing after
/// that. Owned by one thread. Contents of a new piece are whatever was there.
class Arena {
 public:
  /// Errors: std::bad_alloc.
  template <typename T>
  T* take(int64_t count) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
    return static_cast<T*>(take_bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  /// Gives everything back.
  void reset();

  /// What has been taken so far; release() gives back what came after.
  struct Mark {
    int64_t used;
  };
  Mark mark() const { return {used_}; }
  void release(Mark mark) { used_ = mark.used; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  using Block = std::unique_ptr<std::byte, Free>;
  static Block allocate(int64_t bytes);
  void* take_bytes(int64_t bytes);

  Block block_;
  int64_t size_ = 0;
  int64_t used_ = 0;
  std::vector<Block> overflow_;  // pieces that block_ had no room for; it is as large next time
  int64_t overflow_bytes_ = 0;
};

/// The scratch memory of a backend: what the threads share, and what each has of its own, which it
/// touches first (its NUMA node's).
class Workspace {
 public:
  explicit Workspace(int num_threads) : own_(static_cast<size_t>(num_threads)) {}

  /// Memory of the operation that runs; taken outside parallel loops.
  Arena& shared() { return shared_; }
  /// Memory of one thread (ThreadPool::thread_index()), taken inside a parallel loop's body, which
  /// resets it first.
  Arena& own(int thread) { return own_[static_cast<size_t>(thread)].arena; }

 private:
  struct alignas(64) Own {
    Arena arena;
  };
  Arena shared_;
  std::vector<Own> own_;
};

}  // namespace deepinfer::cpu
