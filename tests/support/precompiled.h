// SPDX-License-Identifier: Apache-2.0
// What nearly all tests include and the compiler reads once for each folder of them. A test still
// includes what it uses: it is also built without this (-Db_pch=false).
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
