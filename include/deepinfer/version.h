#pragma once

namespace deepinfer {

/// The library's version, "major.minor.patch".
const char* version() noexcept;

}  // namespace deepinfer
