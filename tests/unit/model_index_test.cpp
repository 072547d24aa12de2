// SPDX-License-Identifier: Apache-2.0
// Indices from untrusted sources, and what is refused before it allocates memory.
#include "model_index.h"

#include <gtest/gtest.h>

#include "support/json_of.h"
#include "support/statuses.h"

namespace zero::tool {
namespace {

using test::json_of;

using Places = std::map<std::string, std::string>;

Result<Places> parsed(std::string_view json) { return parse_model_index(json_of(json)); }

TEST(ModelIndex, each_tensor_has_its_file_and_the_rest_is_ignored) {
  const Result<Places> files = parsed(
      "{'metadata':{'total_size':1.5e9,'less':-1,'more':18446744073709551616,'of':['x',null]},"
      "'weight_map':{'a':'m-1.safetensors','b':'m-2.safetensors','c':'m-1.safetensors'}}");
  ASSERT_TRUE(files.ok()) << files.failure().text();
  EXPECT_EQ(*files,
            (Places{{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}, {"c", "m-1.safetensors"}}));
}

TEST(ModelIndex, what_is_no_index_is_refused_with_its_place) {
  const struct {
    const char *json, *says;
  } bad[] = {{"{}", "there is no 'weight_map'"},
             {"{'weight_map':['a']}", "'weight_map': is an array, but must be an object"},
             {"{'weight_map':{'a':-1}}", "'weight_map'.'a': is a number, but must be a string"},
             {"{'weight_map':{'a':'m','a':'m'}}", "the key 'a' appears twice"},
             {"{'weight_map':{'a':'../m'}}", "'weight_map'.'a': '../m' is not a file name"},
             {"{'weight_map':{'a':'/m'}}", "'/m' is not a file name"},
             {"{'weight_map':{'a':''}}", "'' is not a file name"},
             {"{'weight_map':{}", "not valid JSON"}};
  for (const auto& [json, says] : bad)
    test::expect_failure(parsed(json), ZERO_ERR_CKPT_INVALID, says);
}

TEST(ModelIndex, depth_and_tensors_without_end_are_refused) {
  const std::string deep = "{'metadata':" + std::string(1'000'000, '[');
  test::expect_failure(parsed(deep), ZERO_ERR_CKPT_INVALID,
                       "'metadata'[0][0]: nested deeper than 4");
  std::string wide = "{'weight_map':{'':'m'";
  for (int i = 0; i < 1'000'000; i++) wide += ",'" + std::to_string(i) + "':'m'";
  test::expect_failure(parsed(wide), ZERO_ERR_CKPT_INVALID,
                       "'weight_map': has more than 1000000 keys");
}

}  // namespace
}  // namespace zero::tool
