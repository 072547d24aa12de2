// SPDX-License-Identifier: Apache-2.0

// The program of examples/c/minimal.c in Go: every rank pulls one parameter towards its own number, and the mean
// of these numbers wins. Run it alone, or as `zero-run -n 4 ./minimal`.
package main

// #cgo LDFLAGS: -lzero
// #include <stdlib.h>
// #include <zero.h>
import "C"

import (
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"runtime"
	"unsafe"
)

const count, steps = 4096, 5000

func check(status C.zero_status) {
	if status < 0 {
		log.Fatal(C.GoString(C.zero_last_error()))
	}
}

func arena(comm *C.zero_comm, kind C.int32_t) (memory unsafe.Pointer) {
	check(C.zero_arena_alloc(comm, 4*count, kind, &memory))
	return memory
}

func main() {
	runtime.LockOSThread() // zero_last_error is that of the thread that made the call
	var comm *C.zero_comm
	var optim *C.zero_optim
	check(C.zero_comm_create_env(&comm, nil)) // zero-run, torchrun, mpirun, srun, or alone
	check(C.zero_create(&optim, comm, nil))   // AdamW
	param := C.zero_param{struct_size: C.sizeof_zero_param, name: C.CString("weights"), ndim: 1}
	param.shape = (*C.int64_t)(C.calloc(1, 8)) // C must not get a pointer to memory that holds pointers to Go's
	*param.shape = count
	param.data, param.grad = arena(comm, C.ZERO_MEMORY_SHARED), arena(comm, C.ZERO_MEMORY_PER_RANK)
	weights, grads := unsafe.Slice((*float32)(param.data), count), unsafe.Slice((*float32)(param.grad), count)
	check(C.zero_register_params(optim, nil, &param, 1, nil))
	check(C.zero_broadcast_params(optim, 0, nil))
	rank, world := C.zero_comm_rank(comm), C.zero_comm_world(comm)
	for step := 0; step < steps; step++ {
		for i, weight := range weights {
			grads[i] = weight - float32(rank+1)
		}
		check(C.zero_step(optim, nil))
	}
	if len(os.Args) > 1 {
		save := C.zero_save_options{struct_size: C.sizeof_zero_save_options, flags: C.ZERO_SAVE_REPLACE}
		check(C.zero_state_save(optim, C.CString(os.Args[1]), &save))
	}
	sum := fnv.New64a()
	sum.Write(unsafe.Slice((*byte)(param.data), 4*count))
	fmt.Printf("rank %d of %d: weights[0] is %.2f, the mean %.2f\n", rank, world, weights[0], float64(1+world)/2)
	if rank == 0 {
		fmt.Printf("checksum=%016X\n", sum.Sum64())
	}
	check(C.zero_comm_barrier(comm)) // no rank ends while another is in its last step
}
