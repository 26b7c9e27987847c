#include "model/engram_hash.h"

#include <algorithm>
#include <limits>
#include <set>

#include "model/numpy_random.h"

namespace deepinfer::model {
namespace {

bool is_prime(int64_t n) {
  if (n < 2) return false;
  for (int64_t divisor = 2; divisor * divisor <= n; ++divisor) {
    if (n % divisor == 0) return false;
  }
  return true;
}

/// spec/checkpoint.md §5.4.
std::vector<int64_t> multipliers_of(int32_t layer, int64_t ngram, int64_t compressed_vocab) {
  const int64_t bound =
      std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / compressed_vocab / 2);
  NumpyRandom random(static_cast<uint32_t>(10007 * layer));
  std::vector<int64_t> multipliers;
  for (int64_t i = 0; i < ngram; ++i) {
    multipliers.push_back(2 * static_cast<int64_t>(random.below(static_cast<uint64_t>(bound))) + 1);
  }
  return multipliers;
}

}  // namespace

std::vector<EngramHash> engram_hashes(const checkpoint::ModelConfig& config) {
  std::vector<EngramHash> hashes;
  std::set<int64_t> taken;  // by any earlier (layer, order, head): spec/checkpoint.md §5.3
  for (const int32_t layer : config.engram_layers) {
    EngramHash& hash = hashes.emplace_back();
    hash.multipliers =
        multipliers_of(layer, config.engram_max_ngram, config.engram_compressed_vocab_size);
    for (int64_t order = 2; order <= config.engram_max_ngram; ++order) {
      int64_t current = config.engram_vocab_size - 1;
      for (int64_t head = 0; head < config.engram_num_heads; ++head) {
        do ++current;
        while (!is_prime(current) || taken.contains(current));
        taken.insert(current);
        hash.primes.push_back(current);
        hash.offsets.push_back(hash.num_rows);
        hash.num_rows += current;
      }
    }
  }
  return hashes;
}

}  // namespace deepinfer::model
