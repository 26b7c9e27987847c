#include "base/error.h"

namespace deepinfer {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(ErrorCode::kInternal, fmt::format("internal error at {}:{}: {} does not hold: {}",
                                                file, line, condition, message));
}

}  // namespace deepinfer
