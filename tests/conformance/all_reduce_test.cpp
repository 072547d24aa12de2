// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, through the public header.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace zero::test {
namespace {

TEST(AllReduce, flushed_denormals_of_one_caller_change_nothing) {
  for (const RankKind ranks : {RankKind::threads, RankKind::processes}) {
    const Meeting meeting(CommKind::local, 2);
    const auto results = run_sound_ranks(ranks, 2, [&](int rank) {
      zero_comm* const comm = meeting.join(rank);
      std::vector<float> values(3, 1e-39f);
      std::vector<double> wide(3, 1e-309);
#if defined(__x86_64__)
      const unsigned before = _mm_getcsr();
      if (rank == 1) _mm_setcsr(before | 0x8040);
      const unsigned own = _mm_getcsr() & 0xffc0;  // without the flags of what has happened
#endif
      EXPECT_OK(zero_comm_all_reduce(comm, values.data(), 3, ZERO_FLOAT32, ZERO_SUM));
      EXPECT_OK(zero_comm_all_reduce(comm, wide.data(), 3, ZERO_FLOAT64, ZERO_SUM));
#if defined(__x86_64__)
      EXPECT_EQ(_mm_getcsr() & 0xffc0, own);
      _mm_setcsr(before);
#endif
      zero_comm_free(comm);
      std::string bits(reinterpret_cast<const char*>(values.data()), 12);
      bits.append(reinterpret_cast<const char*>(wide.data()), 24);
      return bits;
    });
    const std::vector<float> twice(3, 1e-39f + 1e-39f);
    const std::vector<double> twice_wide(3, 1e-309 + 1e-309);
    std::string expected(reinterpret_cast<const char*>(twice.data()), 12);
    expected.append(reinterpret_cast<const char*>(twice_wide.data()), 24);
    EXPECT_TRUE(results[0] == expected);
    EXPECT_TRUE(results[1] == expected);
  }
}

}  // namespace
}  // namespace zero::test
