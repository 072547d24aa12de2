// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_graph.h"

#ifdef ZERO_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

namespace zero::test {

#ifdef ZERO_TEST_CUDA

namespace {

Status outcome(cudaError_t error) {
  return error == cudaSuccess ? Status() : Status(ZERO_ERR_SYSTEM, cudaGetErrorString(error));
}

void destroy(void* graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

}  // namespace

Status begin_cuda_capture(StreamHandle stream) {
  return outcome(
      cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal));
}

Result<std::shared_ptr<void>> end_cuda_capture(StreamHandle stream) {
  cudaGraph_t graph = nullptr;
  ZERO_TRY(outcome(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph)));
  cudaGraphExec_t launches = nullptr;
  const Status made = outcome(cudaGraphInstantiateWithFlags(&launches, graph, 0));
  cudaGraphDestroy(graph);
  ZERO_TRY(Status(made));
  return std::shared_ptr<void>(launches, destroy);
}

Status launch_cuda_graph(const std::shared_ptr<void>& graph, StreamHandle stream) {
  return outcome(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.get()),
                                 static_cast<cudaStream_t>(stream)));
}

#else

namespace {

Status none() { return {ZERO_ERR_UNSUPPORTED, "these tests were built without CUDA"}; }

}  // namespace

Status begin_cuda_capture(StreamHandle) { return none(); }
Result<std::shared_ptr<void>> end_cuda_capture(StreamHandle) { return none(); }
Status launch_cuda_graph(const std::shared_ptr<void>&, StreamHandle) { return none(); }

#endif

}  // namespace zero::test
