#include "cuda/stream.h"

#include "cuda/error.h"

namespace deepinfer::cuda {

Stream::Stream() {
  DEEPINFER_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}
Stream::~Stream() {
  cudaStreamDestroy(stream_);
}
void Stream::synchronize() const {
  DEEPINFER_CUDA(cudaStreamSynchronize(stream_));
}

Event::Event(bool timing) {
  DEEPINFER_CUDA(
      cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming));
}
Event::~Event() {
  cudaEventDestroy(event_);
}
void Event::record(cudaStream_t stream) const {
  DEEPINFER_CUDA(cudaEventRecord(event_, stream));
}
void Event::synchronize() const {
  DEEPINFER_CUDA(cudaEventSynchronize(event_));
}
bool Event::is_reached() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady) return false;
  DEEPINFER_CUDA(result);
  return true;
}
float Event::elapsed_ms(const Event& start) const {
  float ms = 0;
  DEEPINFER_CUDA(cudaEventElapsedTime(&ms, start.event_, event_));
  return ms;
}

Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}
void Graph::launch(cudaStream_t stream) const {
  DEEPINFER_CUDA(cudaGraphLaunch(graph_, stream));
}
void Graph::begin(cudaStream_t stream) {
  DEEPINFER_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}
Graph Graph::end(cudaStream_t stream) {
  cudaGraph_t captured = nullptr;
  DEEPINFER_CUDA(cudaStreamEndCapture(stream, &captured));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t result = cudaGraphInstantiate(&graph, captured, 0);
  cudaGraphDestroy(captured);
  DEEPINFER_CUDA(result);
  return Graph(graph);
}

}  // namespace deepinfer::cuda
