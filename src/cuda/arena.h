#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::cuda {

/// Device memory that lives as long as the backend: weights, caches, activations. Handed out from a
/// few large blocks and never given back one by one, so nothing fragments and addresses stay fixed
/// (graphs). Owned by the engine thread.
class Arena {
 public:
  Arena() = default;
  /// Takes a first block of `bytes` at once. Errors: as reserve().
  explicit Arena(int64_t bytes) { reserve(bytes); }
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Takes the next block now, at least `bytes` large. Errors: kResourceExhausted, naming how much
  /// was asked for and how much the device has.
  void reserve(int64_t bytes);
  /// 256-byte aligned, not initialised. Errors: as reserve().
  std::byte* take(int64_t bytes);

  /// Everything taken between the two is free again; blocks taken from the device go back to it.
  struct Mark {
    size_t num_blocks;
    std::byte* next;
    int64_t left;
    int64_t taken;
  };
  Mark mark() const { return {blocks_.size(), next_, left_, taken_}; }
  void release(const Mark& mark);

  int64_t bytes_taken() const { return taken_; }
  /// cudaMalloc calls so far: a step adds none.
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  std::vector<void*> blocks_;
  std::byte* next_ = nullptr;  // free part of the newest block
  int64_t left_ = 0;
  int64_t taken_ = 0;
};

/// Scratch memory of one operation at a time: a fixed block, taken from the front and given back as
/// a whole (WorkspaceScope). Operations run in one stream, so the next one may overwrite it.
class Workspace {
 public:
  Workspace(std::byte* memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}

  int64_t bytes_left() const { return bytes_ - used_; }
  /// 256-byte aligned. Errors: kInternal when the planned size was too small, naming both sizes.
  std::byte* take_bytes(int64_t bytes);
  template <typename T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(count * static_cast<int64_t>(sizeof(T))));
  }

  int64_t peak_bytes() const { return peak_; }

 private:
  friend class WorkspaceScope;
  std::byte* memory_;
  int64_t bytes_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

/// Gives back what was taken since it was made. May be nested.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace& workspace) : workspace_(workspace), used_(workspace.used_) {}
  ~WorkspaceScope() { workspace_.used_ = used_; }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Workspace& workspace_;
  int64_t used_;
};

}  // namespace deepinfer::cuda
