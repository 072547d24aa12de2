// SPDX-License-Identifier: Apache-2.0
// What control messages cost with many ranks. The ranks are threads of this process, and the model
// is so small that a step does little else. CPU time is that of all ranks, divided by ranks and
// steps.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "thread_hosts.h"
#include "zero.h"

namespace {

struct Settings {
  std::vector<int> worlds = {4, 16, 64, 256, 1024};
  int hosts = 1;  // among which the threads are divided
  int steps = 20;
  std::string model = "tensors";  // 148 of 16 elements; "block": one of 1,024; "blocks": one per
                                  // rank; "barrier": exchanges instead of steps
};

void check(zero_status status, const char* what) {
  if (status == ZERO_OK) return;
  fprintf(stderr, "%s: %s\n", what, zero_last_error());
  exit(1);
}

double wall() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double processor() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::vector<std::vector<int64_t>> shapes_of(const std::string& model, int world) {
  if (model == "block") return {{1024}};
  if (model == "blocks") return {{int64_t{1024} * world}};
  return std::vector<std::vector<int64_t>>(148, {16});
}

struct Times {
  double met = 0, sealed = 0, step = 0, processor_step = 0;
};

/// Takes this number of steps on all ranks. Rank 0 reads the clocks.
template <class Step>
void time_steps(int rank, int world, const Settings& settings, std::barrier<>& together,
                Times& times, const Step& step) {
  for (int i = 0; i < 3; i++) step();
  double begin = 0;
  together.arrive_and_wait();
  if (rank == 0) begin = processor();
  const double start = wall();
  for (int i = 0; i < settings.steps; i++) step();
  together.arrive_and_wait();
  if (rank == 0) {
    times.step = (wall() - start) / settings.steps;
    times.processor_step = (processor() - begin) / settings.steps / world;
  }
  together.arrive_and_wait();
}

/// The life of one rank. Rank 0 reads the clocks.
void live(int rank, int world, const Settings& settings, bench::ThreadHosts& hosts,
          std::barrier<>& together, Times& times) {
  const std::string name = "control-" + std::to_string(getpid()) + "-" + std::to_string(world);
  const auto mark = [&](double& seconds, auto&& work) {
    together.arrive_and_wait();
    const double begin = wall();
    work();
    together.arrive_and_wait();
    if (rank == 0) seconds = wall() - begin;
  };
  zero_comm* comm;
  mark(times.met, [&] {
    if (settings.hosts == 1)
      return check(zero_comm_create_local(&comm, name.c_str(), rank, world, nullptr), "comm");
    const zero::Result<zero_comm*> made = hosts.join(rank);
    if (!made.ok()) {
      fprintf(stderr, "comm: %s\n", made.failure().text().c_str());
      exit(1);
    }
    comm = *made;
  });
  if (settings.model == "barrier") {
    time_steps(rank, world, settings, together, times,
               [&] { check(zero_comm_barrier(comm), "zero_comm_barrier"); });
    zero_comm_free(comm);
    return;
  }
  zero_options options;
  ZERO_INIT(options);
  options.threads = 1;
  zero_optim* optim;
  check(zero_create(&optim, comm, &options), "zero_create");
  const auto shapes = shapes_of(settings.model, world);
  size_t elements = 0;
  for (const auto& shape : shapes) elements += static_cast<size_t>(shape[0]);
  void *data, *grads;
  check(zero_arena_alloc(comm, elements * 4, ZERO_MEMORY_SHARED, &data), "arena");
  check(zero_arena_alloc(comm, elements * 4, ZERO_MEMORY_PER_RANK, &grads), "arena");
  std::vector<zero_param> params(shapes.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < shapes.size(); i++) names.push_back("tensor." + std::to_string(i));
  for (size_t i = 0, at = 0; i < shapes.size(); at += static_cast<size_t>(shapes[i++][0])) {
    ZERO_INIT(params[i]);
    params[i].name = names[i].c_str();
    params[i].data = static_cast<float*>(data) + at;
    params[i].grad = static_cast<float*>(grads) + at;
    params[i].dtype = ZERO_FLOAT32;
    params[i].shape = shapes[i].data();
    params[i].ndim = 1;
  }
  check(zero_register_params(optim, nullptr, params.data(), params.size(), nullptr), "register");
  mark(times.sealed, [&] { check(zero_seal(optim), "zero_seal"); });
  time_steps(rank, world, settings, together, times,
             [&] { check(zero_step(optim, nullptr), "zero_step"); });
  zero_free(optim);
  zero_arena_free(data);
  zero_arena_free(grads);
  zero_comm_free(comm);
}

void measure(int world, const Settings& settings) {
  Times times;
  std::barrier<> together(world);
  bench::ThreadHosts hosts(world, settings.hosts);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; rank++)
    ranks.emplace_back([&, rank] { live(rank, world, settings, hosts, together, times); });
  for (std::thread& one : ranks) one.join();
  printf(
      "%6d ranks: meet %8.3f s, seal %8.3f s, step %9.3f ms, processor %8.1f us a rank and step\n",
      world, times.met, times.sealed, times.step * 1e3, times.processor_step * 1e6);
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--steps=", 8) == 0) {
      settings.steps = atoi(argv[i] + 8);
    } else if (strncmp(argv[i], "--hosts=", 8) == 0) {
      settings.hosts = atoi(argv[i] + 8);
    } else if (strncmp(argv[i], "--model=", 8) == 0) {
      settings.model = argv[i] + 8;
    } else if (strncmp(argv[i], "--ranks=", 8) == 0) {
      settings.worlds.clear();
      for (const char* at = argv[i] + 8; *at != 0;) {
        char* end;
        settings.worlds.push_back(static_cast<int>(strtol(at, &end, 10)));
        at = *end == ',' ? end + 1 : end;
      }
    } else {
      fprintf(stderr,
              "usage: control_bench [--ranks=N,N...] [--hosts=N] [--steps=N] "
              "[--model=tensors|block|blocks|barrier]\n");
      return 2;
    }
  }
  for (const int world : settings.worlds) measure(world, settings);
  return 0;
}
