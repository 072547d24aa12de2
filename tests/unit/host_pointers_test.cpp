// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that is given to a comm of the host, in a process that has a driver: one of the
// tests' own.
#include "device/host_pointers.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "zero.h"

namespace zero {
namespace {

struct Driver {
  void* library = dlopen(FAKE_LIBCUDA, RTLD_NOW);
  float* gpu = static_cast<float*>(dlsym(library, "fake_gpu_memory"));
  int* managed = static_cast<int*>(dlsym(library, "fake_is_managed"));
};

TEST(HostPointers, memory_of_a_gpu_is_known_once_a_driver_is_there) {
  float plain[4] = {};
  EXPECT_FALSE(is_gpu_memory(plain));
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) GTEST_SKIP() << "there is one";
  const Driver driver;
  ASSERT_NE(driver.gpu, nullptr) << dlerror();
  usleep(50'000);  // it is not looked for all the time
  EXPECT_TRUE(is_gpu_memory(driver.gpu));
  EXPECT_TRUE(is_gpu_memory(driver.gpu + 100));
  EXPECT_FALSE(is_gpu_memory(plain));
  EXPECT_FALSE(is_gpu_memory(nullptr));
  *driver.managed = 1;
  EXPECT_FALSE(is_gpu_memory(driver.gpu));
  *driver.managed = 0;
}

/// The host may not touch it, as of a GPU's.
class Forbidden {
 public:
  explicit Forbidden(void* page) : page_(page) { mprotect(page_, 4096, PROT_NONE); }
  ~Forbidden() { mprotect(page_, 4096, PROT_READ | PROT_WRITE); }

 private:
  void* const page_;
};

constexpr int64_t kShape[] = {4};

zero_param four_of(float* data, float* grad) {
  zero_param param;
  ZERO_INIT(param);
  param.name = "w";
  param.shape = kShape;
  param.ndim = 1;
  param.data = data;
  param.grad = grad;
  return param;
}

void expect_refused(zero_status status, const std::string& what) {
  EXPECT_EQ(status, ZERO_ERR_ARGUMENT) << what;
  EXPECT_NE(std::string(zero_last_error()).find(what + " is memory of a GPU"), std::string::npos)
      << zero_last_error();
}

TEST(HostPointers, what_the_host_itself_reads_and_writes_is_refused_before_it_is_touched) {
  float* const gpu = Driver().gpu;
  if (!is_gpu_memory(gpu)) GTEST_SKIP() << "the driver of this machine is another one";
  const Forbidden forbidden(gpu);
  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  ASSERT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK);
  expect_refused(zero_comm_all_reduce(comm, gpu, 4, ZERO_FLOAT32, ZERO_SUM), "data");
  expect_refused(zero_comm_broadcast(comm, gpu, 16, 0), "data");
  ASSERT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
  float data[4] = {1, 1, 1, 1}, grad[4] = {1, 1, 1, 1};
  zero_buffer buffer;
  ZERO_INIT(buffer);
  buffer.name = "b";
  buffer.data = gpu;
  buffer.shape = kShape;
  buffer.ndim = 1;
  expect_refused(zero_register_buffers(optim, &buffer, 1), "buffer 'b'");
  const zero_param param = four_of(data, grad);
  ASSERT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
  ASSERT_EQ(zero_step(optim, nullptr), ZERO_OK);
  expect_refused(zero_grad_ready(optim, 0, gpu, nullptr), "the gradient of parameter 'w'");
  expect_refused(zero_state_get(optim, 0, "exp_avg", 0, 4, gpu), "values");
  expect_refused(zero_state_set(optim, 0, "exp_avg", 0, 4, gpu), "values");
  ASSERT_EQ(zero_reduce_grads(optim, nullptr, 0, 0, nullptr), ZERO_OK);
  expect_refused(zero_grad_get(optim, 0, 0, 4, gpu), "values");
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
  zero_free(optim);
  zero_comm_free(comm);
}

TEST(HostPointers, a_comm_of_the_host_refuses_it_by_name_and_goes_on) {
  if (!is_gpu_memory(Driver().gpu)) GTEST_SKIP() << "the driver of this machine is another one";
  float* const gpu = Driver().gpu;
  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  ASSERT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK);
  ASSERT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
  float data[4] = {1, 1, 1, 1}, grad[4] = {1, 1, 1, 1};
  zero_param param = four_of(gpu, nullptr);
  expect_refused(zero_register_params(optim, nullptr, &param, 1, nullptr), "parameter 'w'");
  param.data = data;
  param.grad = gpu;
  expect_refused(zero_register_params(optim, nullptr, &param, 1, nullptr),
                 "the gradient of parameter 'w'");
  param.grad = grad;
  ASSERT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
  void* const given[] = {gpu};
  expect_refused(zero_bind_params(optim, given, nullptr, 1), "parameter 'w'");
  expect_refused(zero_reduce_grads(optim, given, 1, 0, nullptr), "the gradient of parameter 'w'");
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
  EXPECT_LT(data[0], 1);
  zero_free(optim);
  zero_comm_free(comm);
}

}  // namespace
}  // namespace zero
