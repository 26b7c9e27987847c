#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace deepinfer::cuda {

/// An owned stream that does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// Waits for everything in it. Errors of earlier kernels surface here.
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

/// An owned event. `timing`: elapsed_ms() works, at a small cost per record.
class Event {
 public:
  explicit Event(bool timing = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) const;
  void synchronize() const;
  /// Whether it has been reached. Throws what the device failed with.
  bool is_reached() const;
  /// Milliseconds from `start`, both recorded with timing and reached.
  float elapsed_ms(const Event& start) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// A captured sequence of launches that can be replayed.
class Graph {
 public:
  /// Captures what `body()` puts into `stream`.
  template <typename Body>
  static Graph capture(cudaStream_t stream, Body&& body) {
    begin(stream);
    std::forward<Body>(body)();
    return end(stream);
  }
  ~Graph();
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;

  void launch(cudaStream_t stream) const;

 private:
  explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}
  static void begin(cudaStream_t stream);
  static Graph end(cudaStream_t stream);

  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace deepinfer::cuda
