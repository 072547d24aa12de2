// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that is given to a comm of the host, in a process that has a driver: one of the
// tests' own.
#include "device/host_pointers.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
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

TEST(HostPointers, a_comm_of_the_host_refuses_it_by_name_and_goes_on) {
  if (!is_gpu_memory(Driver().gpu)) GTEST_SKIP() << "the driver of this machine is another one";
  float* const gpu = Driver().gpu;
  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  ASSERT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK);
  ASSERT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
  float data[4] = {1, 1, 1, 1}, grad[4] = {1, 1, 1, 1};
  const int64_t shape[] = {4};
  const auto refused = [&](zero_status status, const std::string& what) {
    EXPECT_EQ(status, ZERO_ERR_ARGUMENT);
    EXPECT_NE(std::string(zero_last_error()).find(what + " is memory of a GPU"), std::string::npos)
        << zero_last_error();
  };
  zero_param param;
  zero_param_init(&param, sizeof param);
  param.name = "w";
  param.shape = shape;
  param.ndim = 1;
  param.data = gpu;
  refused(zero_register_params(optim, nullptr, &param, 1, nullptr), "parameter 'w'");
  param.data = data;
  param.grad = gpu;
  refused(zero_register_params(optim, nullptr, &param, 1, nullptr),
          "the gradient of parameter 'w'");
  param.grad = grad;
  ASSERT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
  void* const given[] = {gpu};
  refused(zero_bind_params(optim, given, nullptr, 1), "parameter 'w'");
  refused(zero_reduce_grads(optim, given, 1, 0, nullptr), "the gradient of parameter 'w'");
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
  EXPECT_LT(data[0], 1);
  zero_free(optim);
  zero_comm_free(comm);
}

}  // namespace
}  // namespace zero
