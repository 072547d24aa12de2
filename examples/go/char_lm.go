// SPDX-License-Identifier: Apache-2.0

// A character-level language model, trained by any number of ranks with libzero:
//
//	zero-run -n 4 char_lm --text LICENSE --steps 300
//
// It has the model, the data and the options of examples/c/char_lm.c, and ends with the same bits, because it
// does the same operations in the same order. A product is converted before it is added, so that Go does not
// fuse the two.
package main

/*
#cgo LDFLAGS: -lzero
#include <stdio.h>
#include <stdlib.h>
#include <zero.h>

// Prints warnings, for example that the other ranks have waited ten seconds for one rank.
static void print_log(void *ctx, int32_t level, const char *message) {
  (void)ctx;
  fprintf(stderr, "libzero: %s: %s\n", level == ZERO_LOG_ERROR ? "error" : "warning", message);
}

static zero_status log_warnings(void) {
  return zero_set_log_callback(print_log, NULL, ZERO_LOG_WARNING);
}
*/
import "C"

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"runtime"
	"unsafe"
)

const (
	context, embed, hiddens, symbols = 8, 16, 384, 256

	inputs = context * embed
)

const (
	embedding = iota
	w1
	b1
	w2
	b2
	params
)

var model = [params]struct {
	name  string
	shape []C.int64_t
	fanIn float64
}{
	{"embedding", []C.int64_t{symbols, embed}, 1},
	{"hidden.weight", []C.int64_t{inputs, hiddens}, inputs},
	{"hidden.bias", []C.int64_t{hiddens}, 0},
	{"output.weight", []C.int64_t{hiddens, symbols}, hiddens},
	{"output.bias", []C.int64_t{symbols}, 0},
}

// tensors are parameters or gradients, in libzero's memory.
type tensors [params][]float32

var (
	textFile = flag.String("text", "LICENSE", "`file` to train on")
	steps    = flag.Int("steps", 200, "steps, with those of a loaded checkpoint")
	batch    = flag.Int("batch", 192, "examples a step, of all ranks")
	seed     = flag.Uint64("seed", 1, "of weights and examples")
	rate     = flag.Float64("lr", 2e-3, "learning rate")
	save     = flag.String("save", "", "`directory` for a checkpoint")
	load     = flag.String("load", "", "`directory` of a checkpoint")
	progress = flag.Bool("progress", false, "print each step")
)

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// draw returns 64 random bits, the same on every rank and in every language.
func draw(seed, a, b uint64) uint64 {
	return mix(mix(mix(seed+0x9e3779b97f4a7c15)+a) + b)
}

// initialize draws weights uniformly in +-1/sqrt(fan in). Biases stay zero, because arenas are zero at first.
func initialize(all *tensors) {
	for p, values := range all {
		for i := range values {
			if fanIn := model[p].fanIn; fanIn != 0 {
				unit := float64(draw(*seed, uint64(p), uint64(i))>>11) / 9007199254740992
				values[i] = float32((2*unit - 1) / math.Sqrt(fanIn))
			}
		}
	}
}

// exponential is exp for x <= 0 with only + and *, because math libraries differ in the last bits: its series
// at x/1024, squared ten times.
func exponential(x float64) float64 {
	if x < -100 {
		return 0
	}
	y, e := x/1024, 1.0
	for n := 6.0; n >= 1; n-- {
		e = 1 + float64(y/n*e)
	}
	for i := 0; i < 10; i++ {
		e *= e
	}
	return e
}

func hyperbolicTangent(x float32) float32 {
	e := exponential(-2 * math.Abs(float64(x)))
	value := float32((1 - e) / (1 + e))
	if x < 0 {
		return -value
	}
	return value
}

func dot(a, b []float32) float32 {
	var lanes [8]float32
	for i, x := range a {
		lanes[i%8] += float32(x * b[i])
	}
	return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

func addScaled(out, in []float32, scale float32) {
	for i, x := range in {
		out[i] += float32(x * scale)
	}
}

// row returns row i of a matrix with the given number of columns.
func row(matrix []float32, i, columns int) []float32 {
	return matrix[i*columns : (i+1)*columns]
}

// forward writes the probabilities of the next character to out.
func forward(all *tensors, text []byte, input, hidden, out []float32) {
	for c := 0; c < context; c++ {
		copy(row(input, c, embed), row(all[embedding], int(text[c]), embed))
	}
	copy(hidden, all[b1])
	for i, x := range input {
		addScaled(hidden, row(all[w1], i, hiddens), x)
	}
	for h, x := range hidden {
		hidden[h] = hyperbolicTangent(x)
	}
	copy(out, all[b2])
	for h, x := range hidden {
		addScaled(out, row(all[w2], h, symbols), x)
	}
	largest, total := out[0], float32(0)
	for _, x := range out {
		if x > largest {
			largest = x
		}
	}
	for s, x := range out {
		out[s] = float32(exponential(float64(x - largest)))
		total += out[s]
	}
	for s := range out {
		out[s] /= total
	}
}

// example returns the loss of one example, and adds its gradient times weight to grads. text is its context
// and the character after that.
func example(all, grads *tensors, text []byte, weight float32) float64 {
	var input [inputs]float32
	var hidden, slope [hiddens]float32
	var out [symbols]float32
	target := text[context]
	forward(all, text, input[:], hidden[:], out[:])
	loss := -math.Log(float64(out[target]) + 1e-30) // only printed

	out[target]-- // now the gradient of the loss by the logits
	for s := range out {
		out[s] *= weight
	}
	addScaled(grads[b2], out[:], 1)
	for h, x := range hidden {
		addScaled(row(grads[w2], h, symbols), out[:], x)
		slope[h] = dot(row(all[w2], h, symbols), out[:]) * (1 - float32(x*x))
	}
	addScaled(grads[b1], slope[:], 1)
	for i, x := range input {
		addScaled(row(grads[w1], i, hiddens), slope[:], x)
		grads[embedding][int(text[i/embed])*embed+i%embed] += dot(row(all[w1], i, hiddens), slope[:])
	}
	return loss
}

// forwardBackward trains on this rank's part of the batch. Gradients are weighted so that their mean over ranks
// is the mean over the batch, even if the number of ranks does not divide it.
func forwardBackward(text []byte, all, grads *tensors, step, rank, world int) float64 {
	weight, loss := float32(world)/float32(*batch), 0.0
	for _, values := range grads {
		for i := range values {
			values[i] = 0
		}
	}
	for i := *batch * rank / world; i < *batch*(rank+1)/world; i++ {
		first := draw(*seed+1, uint64(step), uint64(i)) % uint64(len(text)-context)
		loss += example(all, grads, text[first:], weight)
	}
	return loss / float64(*batch)
}

// checksum returns FNV-1a over the bytes of all parameters.
func checksum(all *tensors) uint64 {
	sum := uint64(0xcbf29ce484222325)
	for _, values := range all {
		for _, value := range values {
			for bits, i := math.Float32bits(value), 0; i < 4; bits, i = bits>>8, i+1 {
				sum = (sum ^ uint64(bits&255)) * 0x100000001b3
			}
		}
	}
	return sum
}

// check checks the status of every libzero call.
func check(status C.zero_status, call string) {
	if status < 0 {
		log.Fatalf("%s: %s: %s", call, C.GoString(C.zero_status_name(status)), C.GoString(C.zero_last_error()))
	}
}

// inC copies values to C memory, which lasts as long as the program. Memory that is passed to C must not hold
// pointers to Go memory.
func inC[T any](values ...T) *T {
	memory := (*T)(C.calloc(C.size_t(len(values)), C.size_t(unsafe.Sizeof(values[0]))))
	copy(unsafe.Slice(memory, len(values)), values)
	return memory
}

func arena(comm *C.zero_comm, bytes C.int64_t, kind C.int32_t) (memory unsafe.Pointer) {
	check(C.zero_arena_alloc(comm, C.size_t(bytes), kind, &memory), "zero_arena_alloc")
	return memory
}

// build places parameters and gradients where zero_partition_plan puts them, so that libzero copies nothing.
func build(comm *C.zero_comm) (optim *C.zero_optim, all, grads tensors, arenas [2]unsafe.Pointer) {
	options := C.zero_options{
		struct_size:   C.sizeof_zero_options,
		names:         inC(C.CString("lr")),
		values:        inC(C.double(*rate)),
		setting_count: 1,
	}
	var offsets [params]C.int64_t
	var described [params]C.zero_param
	for p, tensor := range model {
		described[p] = C.zero_param{
			struct_size: C.sizeof_zero_param,
			name:        C.CString(tensor.name),
			shape:       inC(tensor.shape...),
			ndim:        C.int32_t(len(tensor.shape)),
			flags:       C.ZERO_PARAM_PADDED,
		}
	}
	plan := C.zero_plan{struct_size: C.sizeof_zero_plan, offsets: inC(offsets[:]...)}
	check(C.zero_partition_plan(&described[0], params, C.zero_comm_world(comm), &options, &plan), "zero_partition_plan")
	copy(offsets[:], unsafe.Slice(plan.offsets, params))
	arenas[0] = arena(comm, plan.arena_bytes, C.ZERO_MEMORY_SHARED)
	arenas[1] = arena(comm, plan.arena_bytes, C.ZERO_MEMORY_PER_RANK)
	for p, tensor := range model {
		count := C.int64_t(1)
		for _, length := range tensor.shape {
			count *= length
		}
		described[p].data = unsafe.Add(arenas[0], offsets[p])
		described[p].grad = unsafe.Add(arenas[1], offsets[p])
		all[p] = unsafe.Slice((*float32)(described[p].data), count)
		grads[p] = unsafe.Slice((*float32)(described[p].grad), count)
	}
	check(C.zero_create(&optim, comm, &options), "zero_create")
	check(C.zero_register_params(optim, nil, &described[0], params, nil), "zero_register_params")
	return optim, all, grads, arenas
}

func train(text []byte) {
	var comm *C.zero_comm
	check(C.log_warnings(), "zero_set_log_callback")
	check(C.zero_comm_create_env(&comm, nil), "zero_comm_create_env")
	rank, world := int(C.zero_comm_rank(comm)), int(C.zero_comm_world(comm))
	optim, all, grads, arenas := build(comm)
	result := C.zero_result{struct_size: C.sizeof_zero_result}
	if *load != "" {
		check(C.zero_state_load(optim, C.CString(*load), nil), "zero_state_load")
		check(C.zero_step_result(optim, &result), "zero_step_result")
		if rank == 0 {
			fmt.Printf("loaded=%s step=%d world=%d\n", *load, result.step, world)
		}
	} else {
		if rank == 0 {
			initialize(&all)
		}
		check(C.zero_broadcast_params(optim, 0, nil), "zero_broadcast_params")
	}
	every := (*steps + 9) / 10
	if *progress {
		every = 1
	}
	for step := int(result.step) + 1; step <= *steps; step++ {
		loss := forwardBackward(text, &all, &grads, step, rank, world)
		check(C.zero_step(optim, nil), "zero_step")
		check(C.zero_comm_all_reduce(comm, unsafe.Pointer(&loss), 1, C.ZERO_FLOAT64, C.ZERO_SUM), "zero_comm_all_reduce")
		if rank == 0 && (step%every == 0 || step == *steps) {
			fmt.Printf("step=%d loss=%.4f\n", step, loss)
		}
	}
	if *save != "" {
		options := C.zero_save_options{struct_size: C.sizeof_zero_save_options, flags: C.ZERO_SAVE_REPLACE}
		check(C.zero_state_save(optim, C.CString(*save), &options), "zero_state_save")
	}
	if rank == 0 {
		fmt.Printf("checksum=%016X\n", checksum(&all))
	}
	check(C.zero_comm_barrier(comm), "zero_comm_barrier")
	check(C.zero_free(optim), "zero_free")
	for _, memory := range arenas {
		check(C.zero_arena_free(memory), "zero_arena_free")
	}
	check(C.zero_comm_free(comm), "zero_comm_free")
}

func main() {
	runtime.LockOSThread() // zero_last_error returns the error of the calling thread
	log.SetFlags(0)
	log.SetPrefix("char_lm: ")
	flag.Parse()
	if *batch < 1 || *steps < 0 || flag.NArg() > 0 {
		log.Fatal("--batch is at least 1, --steps at least 0, and there is nothing but options")
	}
	text, problem := os.ReadFile(*textFile)
	if problem != nil {
		log.Fatal(problem)
	}
	if len(text) <= context {
		log.Fatalf("%s: is too short to train on", *textFile)
	}
	train(text)
}
