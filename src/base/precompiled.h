// SPDX-License-Identifier: Apache-2.0
// The standard headers that most files include, precompiled. A file must still include what it
// uses, because builds with -Db_pch=false do not use this header.
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
