// SPDX-License-Identifier: Apache-2.0
// The standard headers that most files include. The compiler reads them once. A file still includes
// what it uses: it is also built without this (-Db_pch=false).
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
