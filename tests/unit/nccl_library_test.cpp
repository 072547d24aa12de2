// SPDX-License-Identifier: Apache-2.0
// How NCCL is found at run time: what is tried, what is refused, and libzero's declarations of its
// binary interface.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/nccl/library.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/statuses.h"

#ifdef ZERO_TEST_NCCL_H
#include <nccl.h>
#endif

namespace zero::nccl {
namespace {

using test::expect_failure;
using test::FakeNcclKnobs;
using test::open_fake_nccl;

TEST(NcclLibrary, every_name_tried_is_told_with_the_loaders_words) {
  const std::string names[] = {"/nowhere/libnccl.so.2", "/proc/self/status"};
  Result<Library> opened = open_library(names);
  for (const char* words : {"ZERO_NCCL_PATH; /nowhere/libnccl.so.2: ", "No such file or directory",
                            "; /proc/self/status: "})
    expect_failure(opened, ZERO_ERR_UNSUPPORTED, words);
}

TEST(NcclLibrary, a_library_that_is_not_nccl_is_refused) {
  const std::string names[] = {"libc.so.6"};
  expect_failure(open_library(names), ZERO_ERR_UNSUPPORTED,
                 "found as libc.so.6: it has no function ncclGetVersion");
}

TEST(NcclLibrary, an_older_version_is_refused_with_both_versions) {
  FakeNcclKnobs* knobs = nullptr;
  (void)open_fake_nccl(&knobs);
  const std::string names[] = {FAKE_NCCL};
  for (const auto& [version, words] : std::vector<std::pair<int, std::string>>{
           {22702, "version 2.27.2, but libzero needs 2.27.3"}, {21805, "version 2.18.5,"}}) {
    knobs->version = version;
    expect_failure(open_library(names), ZERO_ERR_UNSUPPORTED, words);
  }
  for (const int version : {22703, 23203, 30000}) {
    knobs->version = version;
    EXPECT_EQ(test::made(open_library(names)).version, version);
  }
}

TEST(NcclLibrary, the_first_name_that_opens_is_taken) {
  const std::string names[] = {"/nowhere/libnccl.so.2", FAKE_NCCL, "libc.so.6"};
  FakeNcclKnobs* knobs = nullptr;
  (void)open_fake_nccl(&knobs);
  EXPECT_EQ(test::made(open_library(names)).path, FAKE_NCCL);
}

TEST(NcclLibrary, names_come_from_the_variable_then_the_loader_then_python_environments) {
  const test::Scratch scratch;
  const std::string root = scratch.path();
  for (const char* folder : {"/lib", "/lib/python3.11", "/lib/other"})
    ASSERT_EQ(mkdir((root + folder).c_str(), 0700), 0) << folder;
  const std::vector<std::string> expected = {
      "/opt/nccl/libnccl.so.2", "libnccl.so.2", "libnccl.so",
      root + "/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"};
  // A separate process has its own environment.
  test::run_sound_ranks(test::RankKind::processes, 1, [&](int) -> std::string {
    setenv("ZERO_NCCL_PATH", "/opt/nccl/libnccl.so.2", 1);
    setenv("VIRTUAL_ENV", root.c_str(), 1);
    setenv("CONDA_PREFIX", "/nowhere", 1);
    EXPECT_EQ(library_names(), expected);
    return "";
  });
}

TEST(NcclLibrary, a_version_reads_as_its_three_numbers) {
  EXPECT_EQ(version_text(22703), "2.27.3");
  EXPECT_EQ(version_text(23203), "2.32.3");
}

/// The real library, if the machine has it. It loads without a driver.
TEST(NcclLibrary, the_real_library_has_every_function) {
  Result<Library> opened = open_library(library_names());
  if (!opened.ok()) GTEST_SKIP() << opened.failure().text();
  EXPECT_GE(opened->version, kOldestVersion);
  EXPECT_STREQ(opened->error_string(kSuccess), "no error");
  EXPECT_NE(std::string(opened->error_string(kRemoteError)).find("remote"), std::string::npos);
}

#ifdef ZERO_TEST_NCCL_H

/// Each function's type in nccl.h, expressed in libzero's types.
template <class T>
struct Ours : std::type_identity<T> {};
template <>
struct Ours<ncclResult_t> : std::type_identity<int> {};
template <>
struct Ours<ncclDataType_t> : std::type_identity<int> {};
template <>
struct Ours<ncclRedOp_t> : std::type_identity<int> {};
template <>
struct Ours<ncclUniqueId> : std::type_identity<UniqueId> {};
template <>
struct Ours<ncclComm_t> : std::type_identity<Handle> {};
template <>
struct Ours<ncclWindow_t> : std::type_identity<Window> {};
template <>
struct Ours<cudaStream_t> : std::type_identity<void*> {};
template <class T>
struct Ours<T*> : std::type_identity<typename Ours<T>::type*> {};
template <>
struct Ours<ncclConfig_t*> : std::type_identity<Config*> {};
template <class Answer, class... Arguments>
auto ours(Answer (*)(Arguments...)) ->
    typename Ours<Answer>::type (*)(typename Ours<std::remove_const_t<Arguments>>::type...);

#define EXPECT_SAME_TYPE(member, function) \
  static_assert(std::is_same_v<decltype(Library::member), decltype(ours(&function))>)

EXPECT_SAME_TYPE(get_version, ncclGetVersion);
EXPECT_SAME_TYPE(get_unique_id, ncclGetUniqueId);
EXPECT_SAME_TYPE(error_string, ncclGetErrorString);
EXPECT_SAME_TYPE(last_error, ncclGetLastError);
EXPECT_SAME_TYPE(init_rank, ncclCommInitRankConfig);
EXPECT_SAME_TYPE(split, ncclCommSplit);
EXPECT_SAME_TYPE(finalize, ncclCommFinalize);
EXPECT_SAME_TYPE(destroy, ncclCommDestroy);
EXPECT_SAME_TYPE(abort, ncclCommAbort);
EXPECT_SAME_TYPE(async_error, ncclCommGetAsyncError);
EXPECT_SAME_TYPE(count, ncclCommCount);
EXPECT_SAME_TYPE(user_rank, ncclCommUserRank);
EXPECT_SAME_TYPE(device, ncclCommCuDevice);
EXPECT_SAME_TYPE(reduce_scatter, ncclReduceScatter);
EXPECT_SAME_TYPE(all_gather, ncclAllGather);
EXPECT_SAME_TYPE(broadcast, ncclBroadcast);
EXPECT_SAME_TYPE(reduce, ncclReduce);
EXPECT_SAME_TYPE(group_start, ncclGroupStart);
EXPECT_SAME_TYPE(group_end, ncclGroupEnd);
EXPECT_SAME_TYPE(window_register, ncclCommWindowRegister);
EXPECT_SAME_TYPE(window_deregister, ncclCommWindowDeregister);

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(int{kInProgress} == ncclInProgress && int{kRemoteError} == ncclRemoteError &&
              int{kInvalidUsage} == ncclInvalidUsage && int{kSuccess} == ncclSuccess);
static_assert(int{kUint8} == ncclUint8 && int{kFloat16} == ncclFloat16 &&
              int{kFloat32} == ncclFloat32 && int{kFloat64} == ncclFloat64 &&
              int{kBfloat16} == ncclBfloat16 && int{kSum} == ncclSum);
static_assert(kSymmetric == NCCL_WIN_COLL_SYMMETRIC);
#ifdef NCCL_CTA_POLICY_ZERO
static_assert(kZeroCtas == NCCL_CTA_POLICY_ZERO);
#endif
static_assert(kNoColor == NCCL_SPLIT_NOCOLOR && kUnset == NCCL_CONFIG_UNDEF_INT);

#define EXPECT_SAME_PLACE(member, field) \
  static_assert(offsetof(Config, member) == offsetof(ncclConfig_t, field))

EXPECT_SAME_PLACE(bytes, size);
EXPECT_SAME_PLACE(magic, magic);
EXPECT_SAME_PLACE(version, version);
EXPECT_SAME_PLACE(blocking, blocking);
EXPECT_SAME_PLACE(cga_cluster_size, cgaClusterSize);
EXPECT_SAME_PLACE(min_ctas, minCTAs);
EXPECT_SAME_PLACE(max_ctas, maxCTAs);
EXPECT_SAME_PLACE(net_name, netName);
EXPECT_SAME_PLACE(split_share, splitShare);
EXPECT_SAME_PLACE(traffic_class, trafficClass);
EXPECT_SAME_PLACE(comm_name, commName);
EXPECT_SAME_PLACE(collnet_enable, collnetEnable);
EXPECT_SAME_PLACE(cta_policy, CTAPolicy);
EXPECT_SAME_PLACE(shrink_share, shrinkShare);
EXPECT_SAME_PLACE(nvls_ctas, nvlsCTAs);

TEST(NcclLibrary, our_config_begins_as_that_of_nccl_h) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config own;
  EXPECT_EQ(own.magic, theirs.magic);
  EXPECT_LE(own.bytes, theirs.size);
  EXPECT_EQ(own.blocking, theirs.blocking);
}

#endif

}  // namespace
}  // namespace zero::nccl
