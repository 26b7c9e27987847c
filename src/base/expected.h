#pragma once

#include <tl/expected.hpp>

namespace deepinfer {

/// The result of something that may fail in an expected way (no free page, queue full, reject).
template <typename T, typename E>
using Expected = tl::expected<T, E>;

template <typename E>
using Unexpected = tl::unexpected<E>;

}  // namespace deepinfer
