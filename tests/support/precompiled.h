// SPDX-License-Identifier: Apache-2.0
// Headers that nearly all tests include, compiled once per test folder. A test still includes what
// it uses, because it is also built without this (-Db_pch=false).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>
