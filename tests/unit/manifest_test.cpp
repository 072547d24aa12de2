// SPDX-License-Identifier: Apache-2.0
// The manifest: what is written can be read back, any accidental change is detected, and an
// inconsistent manifest is refused.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "state/load.h"
#include "support/json_of.h"

namespace zero {
namespace {

using test::json_of;

Manifest sample() {
  Manifest m;
  m.save_id = {0x0123456789abcdef, 0xfedcba9876543210};
  m.step = 1200;
  m.skipped = 3;
  m.world = 2;
  m.created_by = "libzero 0.1.0";
  m.rule = "adamw";
  m.options = {{"max_grad_norm", 1.0}, {"grad_norm_type", std::numeric_limits<double>::infinity()}};
  m.groups = {{"", {{"lr", 1e-3}, {"beta1", 0.9}}}, {"", {{"lr", 5e-324}}}};
  m.files = {{"model-00001-of-00002.safetensors", 4096 + 40, {1}},
             {"optim-00001-of-00002.safetensors", kBlockBytes + 1, {2, 0xffffffffffffffff}},
             {"optim-00002-of-00002.safetensors", 4096, {4}},
             {kIndexName, 100, {5}}};
  m.params = {{{"h.0.w", "F32", {2, 5}, 10, 0},
               0,
               1200,
               1,
               {{"exp_avg", {{1, "h.0.w.exp_avg", 0, 4}, {2, "h.0.w.exp_avg", 4, 6}}},
                {"exp_avg_sq", {{1, "h.0.w.exp_avg_sq", 0, 10}}}}},
              {{"empty \"\u00e9\"", "F32", {0}, 0, 0},
               1,
               0,
               1,
               {{"exp_avg", {{2, "empty.exp_avg", 0, 0}}}}}};
  m.buffers = {{"seen", "I64", {}, 1, 0}, {"running.mean", "BF16", {3, 7}, 21, 0}};
  return m;
}

/// Returns the body of `manifest`, up to its end, with a matching end.
std::string ended(const std::string& manifest) {
  const std::string body = manifest.substr(0, manifest.rfind("\"end\":{"));
  return body + manifest_trailer(body);
}

/// Returns the sample with its first `from` replaced. Both are in single quotes.
std::string edited(std::string_view from, std::string_view to) {
  std::string bytes = write_manifest(sample());
  const size_t at = bytes.find(json_of(from));
  EXPECT_NE(at, std::string::npos) << from;
  if (at == bytes.npos) return bytes;
  return ended(bytes.replace(at, from.size(), json_of(to)));
}

void expect_reads_back(const Manifest& manifest) {
  const auto parsed = parse_manifest(write_manifest(manifest));
  ASSERT_TRUE(parsed.ok()) << parsed.failure().text();
  EXPECT_TRUE(*parsed == manifest);
}

void expect_refused(const Result<Manifest>& parsed, const std::string& words,
                    Code code = ZERO_ERR_CKPT_INVALID) {
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.failure().code(), code);
  EXPECT_NE(parsed.failure().text().find(words), std::string::npos) << parsed.failure().text();
}

TEST(Manifest, what_is_written_reads_back) { expect_reads_back(sample()); }

TEST(Manifest, a_checkpoint_without_extras_says_nothing_of_them) {
  EXPECT_EQ(write_manifest(sample()).find("extra"), std::string::npos);
}

/// Returns a manifest in which no optional field is absent or has its default.
Manifest full() {
  Manifest m = sample();
  m.slots = {"seen", "more"};
  m.params[0].mu_product = 0.75;
  m.params[0].group = 1;
  m.params[0].step = 1100;
  m.params[0].dtype = "F64";
  m.params[0].file = 2;
  m.buffers[1].file = 1;
  m.files.push_back({"extra-00002-of-00002.st", 4100, {6}});
  m.extras = {{1, 4}};
  return m;
}

constexpr const char* kFull =
    R"({
"zero_format":1,
"save_id":"0123456789abcdeffedcba9876543210",
"step":1200,
"skipped":3,
"world":2,
"created_by":"libzero 0.1.0",
"block_bytes":4194304,
"optimizer":{"name":"adamw","options":{"max_grad_norm":"0x1p+0","grad_norm_type":"inf"},"groups":[
{"settings":{"lr":"0x1.0624dd2f1a9fcp-10","beta1":"0x1.ccccccccccccdp-1"}},
{"settings":{"lr":"0x0.0000000000001p-1022"}}],"slots":["seen","more"]},
"files":[
{"name":"model-00001-of-00002.safetensors","bytes":4136,"blocks":["0000000000000001"]},
{"name":"optim-00001-of-00002.safetensors","bytes":4194305,"blocks":["0000000000000002","ffffffffffffffff"]},
{"name":"optim-00002-of-00002.safetensors","bytes":4096,"blocks":["0000000000000004"]},
{"name":"model.safetensors.index.json","bytes":100,"blocks":["0000000000000005"]},
{"name":"extra-00002-of-00002.st","bytes":4100,"blocks":["0000000000000006"]}],
"params":[
{"name":"h.0.w","dtype":"F64","shape":[2,5],"group":1,"step":1100,"mu_product":"0x1.8p-1","file":2,"slots":[{"name":"exp_avg","slices":[{"file":1,"key":"h.0.w.exp_avg","start":0,"count":4},{"file":2,"key":"h.0.w.exp_avg","start":4,"count":6}]},{"name":"exp_avg_sq","slices":[{"file":1,"key":"h.0.w.exp_avg_sq","start":0,"count":10}]}]},
{"name":"empty \")"
    "\u00e9"
    R"(\"","dtype":"F32","shape":[0],"group":1,"step":0,"file":0,"slots":[{"name":"exp_avg","slices":[{"file":2,"key":"empty.exp_avg","start":0,"count":0}]}]}],
"buffers":[
{"name":"seen","dtype":"I64","shape":[],"file":0},
{"name":"running.mean","dtype":"BF16","shape":[3,7],"file":1}],
"extras":[
{"rank":1,"file":4}],
"end":{"bytes":1543,"xxh3":"ba8a6e4bf189cd8e"}}
)";

TEST(Manifest, every_field_is_written_at_its_place_and_reads_back) {
  EXPECT_EQ(write_manifest(full()), kFull);
  expect_reads_back(full());
}

TEST(Manifest, a_product_of_momenta_is_written_where_there_is_one_and_reads_back) {
  EXPECT_EQ(write_manifest(sample()).find("mu_product"), std::string::npos);
  Manifest m = sample();
  m.params[0].mu_product = 0.1 + 0.2;
  m.params[1].mu_product = 0;
  expect_reads_back(m);
  for (const char* bad : {"0x1.8p+0", "-0x1p-1", "inf", "0.5", ""}) {
    const auto refused = parse_manifest(
        edited("'step':1200,'file'", text("'step':1200,'mu_product':'", bad, "','file'")));
    EXPECT_FALSE(refused.ok()) << bad;
  }
}

TEST(Manifest, a_product_of_momenta_stands_exactly_where_the_rule_made_one) {
  const std::vector<Group> nadam(2, group_of(*find_rule("nadam")));
  const std::vector<Group> adamw(2, group_of(*find_rule("adamw")));
  Manifest m = sample();
  m.params.resize(1);
  m.params[0].step = 3;
  EXPECT_TRUE(check_products(m, adamw).ok());
  const Status missing = check_products(m, nadam);
  EXPECT_EQ(missing.code(), ZERO_ERR_CKPT_INVALID);
  EXPECT_NE(missing.text().find(m.params[0].name), std::string::npos) << missing.text();
  m.params[0].mu_product = 0.5;
  EXPECT_TRUE(check_products(m, nadam).ok());
  EXPECT_EQ(check_products(m, adamw).code(), ZERO_ERR_CKPT_INVALID);
  m.params[0].step = 0;
  EXPECT_EQ(check_products(m, nadam).code(), ZERO_ERR_CKPT_INVALID);
  m.params[0].mu_product = 1;
  EXPECT_TRUE(check_products(m, nadam).ok());
}

TEST(Manifest, a_rule_of_a_group_is_written_in_the_second_format_and_reads_back) {
  Manifest m = sample();
  m.groups[1].rule = "sgd";
  m.format = 2;
  expect_reads_back(m);
  EXPECT_EQ(m.rule_of(m.groups[0]), "adamw");
  EXPECT_EQ(m.rule_of(m.groups[1]), "sgd");
  EXPECT_NE(write_manifest(m).find("\"zero_format\":2,"), std::string::npos);
  EXPECT_NE(write_manifest(m).find("{\"optimizer\":\"sgd\",\"settings\""), std::string::npos);
  expect_refused(parse_manifest(edited("'zero_format':1", "'zero_format':2")),
                 "its format is 2, but its groups need 1");
  expect_refused(
      parse_manifest(edited("{'settings':{'lr':'0x0", "{'optimizer':'sgd','settings':{'lr':'0x0")),
      "its format is 1, but its groups need 2");
  m.groups[1].rule = "adamv";
  const auto rules = find_rules(m);
  ASSERT_FALSE(rules.ok());
  EXPECT_NE(rules.failure().text().find("there is no optimizer 'adamv'"), std::string::npos);
}

TEST(Manifest, without_files_groups_or_parameters_reads_back) {
  Manifest m = sample();
  m.groups.clear();
  m.files.clear();
  m.params.clear();
  m.buffers.clear();
  m.options.clear();
  expect_reads_back(m);
}

TEST(Manifest, keys_may_come_in_any_order_and_new_ones_are_ignored) {
  const auto reordered = parse_manifest(
      edited("'file':1,'key':'h.0.w.exp_avg','start':0,'count':4",
             "'count':4,'news':[1,{'a':'b'}],'start':0,'file':1,'key':'h.0.w.exp_avg'"));
  ASSERT_TRUE(reordered.ok()) << reordered.failure().text();
  EXPECT_TRUE(*reordered == sample());
}

TEST(Manifest, without_buffers_it_says_nothing_of_them_and_none_are_needed) {
  Manifest m = sample();
  m.buffers.clear();
  EXPECT_EQ(write_manifest(m).find("buffers"), std::string::npos);
  expect_reads_back(m);
}

TEST(Manifest, slices_may_be_listed_in_any_order) {
  Manifest m = sample();
  std::swap(m.params[0].slots[0].slices[0], m.params[0].slots[0].slices[1]);
  const auto parsed = parse_manifest(write_manifest(m));
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(*parsed == sample());
}

TEST(Manifest, every_flipped_bit_is_found) {
  const std::string sound = write_manifest(sample());
  for (size_t i = 0; i < sound.size(); i++) {
    for (int bit = 0; bit < 8; bit++) {
      std::string bytes = sound;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const auto parsed = parse_manifest(bytes);
      ASSERT_FALSE(parsed.ok()) << "byte " << i << ", bit " << bit;
      ASSERT_EQ(parsed.failure().code(), ZERO_ERR_CKPT_INVALID);
    }
  }
}

// fault/damage_test cuts it at every position.
TEST(Manifest, what_is_added_or_lacks_its_first_byte_is_found) {
  const std::string sound = write_manifest(sample());
  for (const char* tail : {" ", "\n", "}", "\0x"}) {
    EXPECT_FALSE(parse_manifest(sound + std::string(tail, tail[0] ? 1 : 2)).ok());
  }
  EXPECT_FALSE(parse_manifest(sound + sound).ok());
  EXPECT_FALSE(parse_manifest(sound.substr(1)).ok());
}

TEST(Manifest, another_format_is_unsupported_whatever_else_it_has) {
  expect_refused(parse_manifest(edited("'zero_format':1,\n'save_id'", "'zero_format':3,\n'id'")),
                 "format 3, but this libzero reads 1 and 2", ZERO_ERR_UNSUPPORTED);
}

/// The value of a key, and others that are refused with these words.
struct Bad {
  const char *key, *value;
  std::vector<const char*> others;
  const char* says;
};

const Bad kBad[] = {
    // Keys and numbers. json_test checks that each has its kind.
    {"'step':", "1200", {"-1"}, "negative"},
    {"'step':", "1200", {"1200,'step':1200"}, "'step' appears twice"},
    {"'world':", "2", {"0"}, "the world is 0"},
    {"'world':", "2", {"2147483648"}, "must be below 2^31"},
    {"'block_bytes':", "4194304", {"4194305", "0"}, "must be 4194304"},
    {"'save_id':",
     "'0123456789abcdef",
     {"'0123456789abcde", "'0123456789ABCDEF", "'../3456789abcdef0"},
     "32 hexadecimal digits"},
    {"", "'optimizer':{", {"'optimizers':{"}, "there is no 'optimizer'"},
    {"'lr':",
     "'0x1.0624dd2f1a9fcp-10'",
     {"'0.001'", "'nan'", "'0xnan'", "'0x1p99999'", "'--0x1p1'", "'0x-1p1'", "'0x1p1 '", "'0x'",
      "''"},
     "not a hexadecimal number"},
    {"", "'beta1'", {"'lr'"}, "'lr' appears twice"},
    {"", "'settings':{'lr'", {"'setting':{'lr'"}, "there is no 'settings'"},
    // Files.
    {"'name':",
     "'model-00001-of-00002.safetensors'",
     {"'../model.safetensors'", "'/etc/passwd.safetensors'", "'a/b.safetensors'",
      "'a\\\\b.safetensors'", "'..'", "'.'", "'.hidden.safetensors'", "''", "'a\\nb.safetensors'",
      "'zero.json'", "'.safetensors'"},
     "not a valid name"},
    {"'name':", "'model-00001-of-00002.safetensors'", {"'a\\u0000.safetensors'"}, "NUL"},
    {"'name':", "'model-00001-of-00002.safetensors'", {"'model.bin'"}, "cannot hold tensors"},
    {"'name':", "'optim-00001-of-00002", {"'model-00001-of-00002"}, "is listed twice"},
    {"'bytes':", "4136,'blocks':['0000000000000001']", {"0,'blocks':[]"}, "has no bytes"},
    {"'bytes':", "4136", {"4194305"}, "1 checksums for 4194305 bytes, which are 2 blocks"},
    {"'bytes':", "4136", {"9223372036854775807"}, "2199023255552 blocks"},
    {"'bytes':", "4194305", {"4194304"}, "2 checksums for 4194304"},
    {"'blocks':", "['0000000000000001']", {"[]"}, "0 checksums"},
    {"'blocks':",
     "['0000000000000001']",
     {"['1']", "['000000000000000g']"},
     "16 hexadecimal digits"},
    // Parameters.
    {"'name':", "'h.0.w'", {"''"}, "a name of 0 bytes"},
    {"'name':", "'h.0.w'", {"'empty \\'\u00e9\\''"}, "is listed twice"},
    {"'dtype':", "'F32'", {"'U32'"}, "dtype 'U32', but must be F32"},
    {"'dtype':", "'F32'", {"'I32'"}, "dtype I32 cannot be trained, but it has state"},
    {"'dtype':", "'F32'", {"''"}, "must be F32"},
    {"'shape':", "[2,5]", {"[2,6]"}, "no slice holds element 10"},
    {"'shape':", "[2,5]", {"[3]"}, "ends after element 3"},
    {"'shape':", "[2,5]", {"[0]"}, "ends after element 0"},
    {"'shape':",
     "[2,5]",
     {"[4294967296,4294967296]", "[9223372036854775807]"},
     "product overflows"},
    {"'shape':", "[2,5]", {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2,5]"}, "more than 16 dimensions"},
    {"'group':", "0", {"2"}, "group 2 does not exist: there are 2"},
    {"'group':", "0", {"2147483648"}, "must be below 2^31"},
    {"'file':", "0", {"4"}, "file 4 cannot hold tensors"},
    {"'file':", "0", {"3"}, "file 3 cannot hold tensors"},
    {"'file':", "0", {"2147483648"}, "must be below 2^31"},
    // Slots and slices.
    {"'name':", "'exp_avg_sq'", {"'exp_avg'"}, "appears twice"},
    {"'name':", "'exp_avg_sq'", {"''"}, "has no name"},
    {"'slices':",
     "[{'file':1,'key':'h.0.w.exp_avg_sq','start':0,'count':10}]",
     {"[]"},
     "no slices"},
    {"'start':",
     "4,'count':6",
     {"5,'count':5", "9223372036854775807,'count':6"},
     "no slice holds element 4"},
    {"'start':", "4,'count':6", {"3,'count':7"}, "two slices hold element 3"},
    {"'start':", "4,'count':6", {"0,'count':10"}, "two slices hold element 0"},
    {"'start':", "4,'count':6", {"4,'count':5"}, "no slice holds element 9"},
    {"'start':",
     "4,'count':6",
     {"4,'count':7", "4,'count':9223372036854775807"},
     "ends after element 10"},
    {"'start':", "4,'count':6", {"4,'count':0"}, "an empty slice"},
    {"'start':", "0,'count':4", {"1,'count':3"}, "no slice holds element 0"},
    {"'start':", "0,'count':0", {"0,'count':1"}, "ends after element 0"},
    {"'start':", "0,'count':0", {"1,'count':0"}, "no slice holds element 0"},
    {"{'file':2,'key':",
     "'empty.exp_avg','start':0,'count':0}",
     {"'a','start':0,'count':0},{'file':2,'key':'b','start':0,'count':0}"},
     "an empty slice"},
    {"'file':", "2,'key'", {"9,'key'"}, "file 9 cannot hold tensors"},
    {"'file':", "2,'key'", {"3,'key'"}, "file 3 cannot hold tensors"},
    {"'key':", "'h.0.w.exp_avg'", {"''"}, "a slice has no key"},
    {"'key':", "'h.0.w.exp_avg'", {"'h.0.w.exp_avg_sq'"}, "is used twice"},
    {"'key':", "'empty.exp_avg'", {"'h.0.w.exp_avg'"}, "is used twice"},
    // Buffers.
    {"'buffers':", "[", {"[],'buffers':["}, "'buffers' appears twice"},
    {"'name':", "'seen'", {"''"}, "buffer '': a name of 0 bytes"},
    {"'name':", "'seen'", {"'running.mean'"}, "buffer 'running.mean' is listed twice"},
    {"'name':", "'seen'", {"'h.0.w'"}, "buffer 'h.0.w' is listed twice, or is also a parameter"},
    {"'dtype':", "'I64'", {"'BOOL'"}, "buffer 'seen': dtype 'BOOL', but must be F32"},
    {"'shape':",
     "[3,7]",
     {"[4294967296,4294967296]", "[9223372036854775807]"},
     "product overflows"},
    {"'shape':", "[3,7]", {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3,7]"}, "more than 16 dimensions"},
    {"'shape':", "[3,7],'file':0", {"[3,7],'file':3"}, "file 3 cannot hold tensors"},
    {"'shape':", "[3,7],'file':0", {"[3,7],'file':9"}, "file 9 cannot hold tensors"},
    {"'shape':", "[3,7],'file':0", {"[3,7],'file':2147483648"}, "must be below 2^31"},
    {"'shape':", "[3,7],'file':0", {"[3,7]"}, "there is no 'file'"},
    // A second end, and depth.
    {"", "'params':[", {"'end':{'bytes':1,'xxh3':''},'params':["}, "'end' appears twice"},
    {"", "'params':[", {"'x':[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]],'params':["}, "nested deeper"},
    {"", "'params':[", {"'params':[7,"}, "must be an object"},
};

TEST(Manifest, keys_without_end_are_refused) {
  std::string keys;
  for (int i = 0; i < 1001; i++) keys += text("'x", i, "':0,");
  expect_refused(parse_manifest(edited("'params':[", text("'y':{", keys, "'z':0},'params':["))),
                 "'y': has more than 1000 keys");
}

TEST(Manifest, refuses_what_is_inconsistent_although_its_checksum_is_right) {
  for (const Bad& bad : kBad) {
    for (const char* other : bad.others) {
      SCOPED_TRACE(text(bad.key, bad.value, " -> ", other));
      const std::string from = text(bad.key, bad.value), to = text(bad.key, other);
      expect_refused(parse_manifest(edited(from, to)), bad.says);
    }
  }
}

TEST(Manifest, what_is_not_there_is_asked_for_by_name) {
  for (const std::string_view field :
       {"'zero_format':1,", "'step':1200,", "'world':2,", "'name':'h.0.w',",
        "'key':'h.0.w.exp_avg',", "'name':'seen',", "'dtype':'I64',", "'shape':[3,7],"}) {
    const std::string_view key = field.substr(0, field.find(':'));
    expect_refused(parse_manifest(edited(field, "")), text("there is no ", key));
  }
}

TEST(Manifest, a_tensor_of_one_file_is_not_used_by_two_parameters) {
  Manifest m = sample();
  m.params[1].slots[0].slices[0].key = "h.0.w.exp_avg";
  EXPECT_FALSE(parse_manifest(write_manifest(m)).ok());
  m.params[1].slots[0].slices[0] = {0, "h.0.w", 0, 0};
  EXPECT_FALSE(parse_manifest(write_manifest(m)).ok());
  m.params[1].slots[0].slices[0] = {0, "seen", 0, 0};
  expect_refused(parse_manifest(write_manifest(m)), "tensor 'seen' of file 0 is used twice");
}

TEST(Manifest, mutations_with_a_right_checksum_are_refused_or_consistent) {
  const std::string sound = write_manifest(sample());
  const std::string body = sound.substr(0, sound.rfind("\"end\":{"));
  std::mt19937 random(13);
  int accepted = 0;
  for (int round = 0; round < 30'000; round++) {
    const std::string mutant = test::damaged(body, "{}[]\",:0123456789abxp.-e\xff", random);
    const auto parsed = parse_manifest(mutant + manifest_trailer(mutant));
    if (!parsed.ok()) continue;
    accepted++;
    // An accepted manifest is what the rest of a load relies on, so it must survive a round trip.
    const auto again = parse_manifest(write_manifest(*parsed));
    ASSERT_TRUE(again.ok()) << again.failure().text();
    ASSERT_TRUE(*again == *parsed);
  }
  EXPECT_GT(accepted, 0);
}

TEST(Manifest, doubles_keep_their_bits) {
  std::mt19937_64 random(17);
  using Limits = std::numeric_limits<double>;
  std::vector<double> values;
  for (const double value : {0.0, 1.0, 1.5, 1e-3, Limits::denorm_min(), Limits::min(),
                             Limits::max(), Limits::infinity()})
    values.insert(values.end(), {value, -value});
  for (int i = 0; i < 20'000; i++) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isnan(value)) values.push_back(value);
  }
  for (const double value : values) {
    double back = 7;
    ASSERT_TRUE(parse_hex_double(hex_double(value), back)) << hex_double(value);
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << hex_double(value);
  }
  EXPECT_EQ(hex_double(0.75),
            "0x1.8p-1");  // like printf's %a and Python's float.hex, except trailing zeros
}

TEST(Manifest, only_names_that_a_save_gives_count_as_checkpoint_files) {
  for (const char* name : {"zero.json", "model.safetensors.index.json",
                           "model-00001-of-00001.safetensors", "optim-00012-of-99999.safetensors",
                           "optim-100000-of-123456.safetensors", "extra-00001-of-00002.st"}) {
    EXPECT_TRUE(is_checkpoint_file(name)) << name;
  }
  for (const char* name :
       {"", "zero.json~", "azero.json", "config.json", "model.safetensors",
        "model-1-of-1.safetensors", "model-00001-of-00001.safetensors.bak", "model-00001-of-00001",
        "xmodel-00001-of-00001.safetensors", "model-00001-of-.safetensors",
        "model--0001-of-00001.safetensors", "model-000001-of-00001.safetensors",
        "optim-00001-of-00001.safetensors/x", "extra-00001-of-00002.safetensors",
        "model-00001-of-00001.st", "extra-1-of-00002.st"}) {
    EXPECT_FALSE(is_checkpoint_file(name)) << name;
  }
  EXPECT_EQ(shard_name("optim", 1, 4), "optim-00002-of-00004.safetensors");
  EXPECT_TRUE(is_checkpoint_file(shard_name("model", 123455, 123456)));
}

TEST(Manifest, the_index_maps_every_parameter_and_buffer_to_its_file) {
  EXPECT_EQ(write_index(sample()),
            "{\"metadata\":{\"total_size\":90},\n\"weight_map\":{\n"
            "\"h.0.w\":\"model-00001-of-00002.safetensors\",\n"
            "\"empty \\\"\u00e9\\\"\":\"model-00001-of-00002.safetensors\",\n"
            "\"seen\":\"model-00001-of-00002.safetensors\",\n"
            "\"running.mean\":\"model-00001-of-00002.safetensors\"}}\n");
}

}  // namespace
}  // namespace zero
