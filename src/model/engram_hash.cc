#include "model/engram_hash.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/numpy_random.h"

namespace deepinfer::model {
namespace {

/// spec/checkpoint.md §5.4.
std::vector<int64_t> multipliers_of(int32_t layer, int64_t ngram, int64_t compressed_vocab) {
  const int64_t bound =
      std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / compressed_vocab / 2);
  NumpyRandom random(static_cast<uint32_t>(10007 * layer));
  std::vector<int64_t> multipliers;
  multipliers.reserve(static_cast<size_t>(ngram));
  for (int64_t i = 0; i < ngram; ++i) {
    multipliers.push_back(2 * static_cast<int64_t>(random.below(static_cast<uint64_t>(bound))) + 1);
  }
  return multipliers;
}

}  // namespace

std::vector<EngramHash> engram_hashes(const checkpoint::ModelConfig& config) {
  std::vector<EngramHash> hashes;
  for (std::vector<int64_t>& primes : checkpoint::engram_primes(config)) {
    const int32_t layer = config.engram_layers[hashes.size()];
    EngramHash& hash = hashes.emplace_back();
    hash.multipliers =
        multipliers_of(layer, config.engram_max_ngram, config.engram_compressed_vocab_size);
    hash.primes = std::move(primes);
    for (const int64_t prime : hash.primes) {
      hash.offsets.push_back(hash.num_rows);
      hash.num_rows += prime;
    }
  }
  return hashes;
}

}  // namespace deepinfer::model
