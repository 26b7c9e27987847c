#pragma once

#include "ops/commit.h"
#include "ops/resolve_rows.h"

/// The first and the last operation of a step for every backend whose memory is the host's: loops
/// over rows and slots without arithmetic on activations. They allocate nothing.
namespace deepinfer::ops {

void resolve_rows_on_host(const ResolveRowsParams& params);
void commit_on_host(const CommitParams& params);

}  // namespace deepinfer::ops
