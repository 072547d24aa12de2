/* SPDX-License-Identifier: Apache-2.0 */
/* The fragments of docs/gpu.md that need a GPU: compiled against the few names of CUDA that they use,
 * and not run. */
#include <stdio.h>
#include <stdlib.h>

#include "zero.h"

typedef struct CUstream_st *cudaStream_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum { cudaStreamCaptureModeThreadLocal = 1 };
int cudaStreamBeginCapture(cudaStream_t stream, int mode);
int cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
int cudaGraphInstantiate(cudaGraphExec_t *launches, cudaGraph_t graph, unsigned long long flags);
int cudaGraphLaunch(cudaGraphExec_t launches, cudaStream_t stream);
int cudaStreamSynchronize(cudaStream_t stream);

void forward_backward(float *weights, float *grads, cudaStream_t stream);
void next_batch_and_lr(float *lr, cudaStream_t stream);

#include "errors/errors-1.c"

void create(zero_comm *comm) {
#include "gpu/one-gpu-1.c"
#include "gpu/several-gpus-1.c"
}

void train(zero_optim *optim, float *weights, float *grads, float *lr, cudaStream_t stream, int steps) {
  cudaGraph_t graph;
  cudaGraphExec_t launches;
#include "gpu/the-loop-1.c"
#include "gpu/cuda-graphs-1.c"
}
