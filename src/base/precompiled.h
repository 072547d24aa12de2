// SPDX-License-Identifier: Apache-2.0
// What most files include of the standard library, which the compiler reads once. A file still
// includes what it uses: it is also built without this (-Db_pch=false).
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
