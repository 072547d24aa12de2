// SPDX-License-Identifier: Apache-2.0
// GPU memory that is passed to a comm on the host, in a process with a driver, which is the tests'
// own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "device/memory.h"
#include "support/optim.h"

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
  usleep(50'000);  // the library looks for the driver only at intervals
  EXPECT_TRUE(is_gpu_memory(driver.gpu));
  EXPECT_TRUE(is_gpu_memory(driver.gpu + 100));
  EXPECT_FALSE(is_gpu_memory(plain));
  EXPECT_FALSE(is_gpu_memory(nullptr));
  *driver.managed = 1;
  EXPECT_FALSE(is_gpu_memory(driver.gpu));
  *driver.managed = 0;
}

/// Forbids the host to access the page, like GPU memory.
class Forbidden {
 public:
  explicit Forbidden(void* page) : page_(page) { mprotect(page_, 4096, PROT_NONE); }
  ~Forbidden() { mprotect(page_, 4096, PROT_READ | PROT_WRITE); }

 private:
  void* const page_;
};

constexpr int64_t kFour = 4;

void expect_refused(zero_status status, const std::string& what) {
  EXPECT_TRUE(test::ends(status, ZERO_ERR_ARGUMENT, what + " is GPU memory"));
}

/// A solo comm, an optimizer on it, and GPU memory.
class GivenToTheHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_gpu_memory(gpu_)) GTEST_SKIP() << "the driver of this machine is another one";
    ASSERT_EQ(zero_create(&optim_, comm_, nullptr), ZERO_OK);
  }
  ~GivenToTheHost() override {
    zero_free(optim_);
    zero_comm_free(comm_);
  }

  float* const gpu_ = Driver().gpu;
  zero_comm* const comm_ = test::solo();
  zero_optim* optim_ = nullptr;
  float data_[4] = {1, 1, 1, 1}, grad_[4] = {1, 1, 1, 1};
};

TEST_F(GivenToTheHost, what_the_host_itself_reads_and_writes_is_refused_before_it_is_touched) {
  const Forbidden forbidden(gpu_);
  expect_refused(zero_comm_all_reduce(comm_, gpu_, 4, ZERO_FLOAT32, ZERO_SUM), "data");
  expect_refused(zero_comm_broadcast(comm_, gpu_, 16, 0), "data");
  const std::vector<int64_t> shape = {4};
  const zero_buffer buffer = test::buffer("b", shape, gpu_, ZERO_FLOAT32);
  expect_refused(zero_register_buffers(optim_, &buffer, 1), "buffer 'b'");
  const zero_param param = test::parameter("w", kFour, data_, grad_);
  ASSERT_EQ(zero_register_params(optim_, nullptr, &param, 1, nullptr), ZERO_OK);
  ASSERT_EQ(zero_step(optim_, nullptr), ZERO_OK);
  expect_refused(zero_grad_ready(optim_, 0, gpu_, nullptr), "the gradient of parameter 'w'");
  expect_refused(zero_state_get(optim_, 0, "exp_avg", 0, 4, gpu_), "values");
  expect_refused(zero_state_set(optim_, 0, "exp_avg", 0, 4, gpu_), "values");
  ASSERT_EQ(zero_reduce_grads(optim_, nullptr, 0, 0, nullptr), ZERO_OK);
  expect_refused(zero_grad_get(optim_, 0, 0, 4, gpu_), "values");
  EXPECT_EQ(zero_step(optim_, nullptr), ZERO_OK);
}

TEST_F(GivenToTheHost, is_refused_by_name_and_the_comm_goes_on) {
  const zero_param elsewhere = test::parameter("w", kFour, gpu_, nullptr),
                   gradient = test::parameter("w", kFour, data_, gpu_),
                   param = test::parameter("w", kFour, data_, grad_);
  expect_refused(zero_register_params(optim_, nullptr, &elsewhere, 1, nullptr), "parameter 'w'");
  expect_refused(zero_register_params(optim_, nullptr, &gradient, 1, nullptr),
                 "the gradient of parameter 'w'");
  ASSERT_EQ(zero_register_params(optim_, nullptr, &param, 1, nullptr), ZERO_OK);
  void* const given[] = {gpu_};
  expect_refused(zero_bind_params(optim_, given, nullptr, 1), "parameter 'w'");
  expect_refused(zero_reduce_grads(optim_, given, 1, 0, nullptr), "the gradient of parameter 'w'");
  EXPECT_EQ(zero_step(optim_, nullptr), ZERO_OK);
  EXPECT_LT(data_[0], 1);
}

}  // namespace
}  // namespace zero
