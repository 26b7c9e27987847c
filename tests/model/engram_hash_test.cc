#include "model/engram_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "checkpoint/presets.h"
#include "model/numpy_random.h"
#include "ops/engram.h"
#include "tests/support/tensors.h"

namespace deepinfer::model {
namespace {

using Numbers = std::vector<int64_t>;
using testing::to_tensor;

std::vector<EngramHash> released() {
  return engram_hashes(checkpoint::release_config());
}

TEST(NumpyRandom, YieldsNumpysRawOutputs) {
  NumpyRandom random(10007);  // numpy.random.default_rng(10007).bit_generator.random_raw(3)
  EXPECT_EQ(random.next(), 15187255322829266483U);
  EXPECT_EQ(random.next(), 959186003677246517U);
  EXPECT_EQ(random.next(), 7126631698937927467U);
}

TEST(NumpyRandom, StaysBelowItsBound) {
  NumpyRandom random(1);
  // The second bound rejects nearly half of the raw outputs.
  for (const uint64_t bound : {uint64_t{1}, (uint64_t{1} << 63) + 1, uint64_t{10}}) {
    for (int i = 0; i < 200; ++i) EXPECT_LT(random.below(bound), bound);
  }
}

// spec/checkpoint.md §5.3.
TEST(EngramHash, HasTheReleasedPrimes) {
  const std::vector<EngramHash> hashes = released();
  ASSERT_EQ(hashes.size(), 2);
  EXPECT_EQ(
      hashes[0].primes,
      (Numbers{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
               16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
               16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463}));
  EXPECT_EQ(
      hashes[1].primes,
      (Numbers{16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,
               16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,
               16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889}));
}

TEST(EngramHash, HasTheReleasedOffsets) {
  const std::vector<EngramHash> hashes = released();
  ASSERT_EQ(hashes.size(), 2);
  const auto at = [](const EngramHash& hash, std::initializer_list<size_t> columns) {
    Numbers offsets;
    for (const size_t column : columns) offsets.push_back(hash.offsets.at(column));
    return offsets;
  };
  EXPECT_EQ(at(hashes[0], {0, 1, 2, 22, 23}),
            (Numbers{0, 16000057, 32000136, 352005258, 368005705}));
  EXPECT_EQ(at(hashes[1], {0, 1, 2, 22, 23}),
            (Numbers{0, 16000477, 32000964, 352014914, 368015793}));
  EXPECT_EQ(hashes[0].num_rows, 384006168);
  EXPECT_EQ(hashes[1].num_rows, 384016682);
}

// spec/checkpoint.md §5.4.
TEST(EngramHash, HasTheReleasedMultipliers) {
  const std::vector<EngramHash> hashes = released();
  ASSERT_EQ(hashes.size(), 2);
  EXPECT_EQ(hashes[0].multipliers,
            (Numbers{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hashes[1].multipliers,
            (Numbers{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

/// Table rows of the newest token of `context` (at p, p - 1, …; -1 before the start).
Numbers rows(const EngramHash& hash, const std::vector<int32_t>& context) {
  std::vector<int32_t> map(129280);  // only the ids that the goldens use
  map[3] = 3;
  map[19923] = 15844;
  map[128803] = 98615;
  map[128804] = 98616;
  map[128822] = 98634;
  const auto columns = static_cast<int64_t>(hash.primes.size());
  const Tensor token_map = to_tensor(map, {static_cast<int64_t>(map.size())});
  const Tensor multipliers =
      to_tensor(hash.multipliers, {static_cast<int64_t>(hash.multipliers.size())});
  const Tensor primes = to_tensor(hash.primes, {columns});
  const Tensor offsets = to_tensor(hash.offsets, {columns});
  ops::EngramParams params;
  params.token_map = token_map;
  params.pad = 2;
  params.multipliers = multipliers;
  params.primes = primes;
  params.offsets = offsets;
  Numbers result(hash.primes.size());
  ops::engram_rows(params, context, result);
  return result;
}

// spec/checkpoint.md §5.6.
TEST(EngramHash, AddressesTheReleasedRows) {
  const std::vector<EngramHash> hashes = released();
  ASSERT_EQ(hashes.size(), 2);
  EXPECT_EQ(rows(hashes[0], {0, -1, -1, -1}),
            (Numbers{5702652,   24393184,  39183301,  61503783,  78984481,  90144770,
                     103724983, 121476532, 131476717, 152385926, 164143652, 191599181,
                     198145581, 217419202, 238329687, 247482304, 257520185, 283540304,
                     288689443, 315264704, 322314652, 348890037, 367865216, 380066193}));
  EXPECT_EQ(rows(hashes[0], {3, 0, -1, -1}),
            (Numbers{13136173,  17031479,  36294826,  62401242,  69561560,  82615312,
                     105142365, 122730833, 143666100, 156931932, 165213353, 180168542,
                     197858374, 222703855, 235972003, 240958518, 270063682, 283921719,
                     297024305, 319576009, 329277020, 351828750, 355986352, 378790237}));
  EXPECT_EQ(rows(hashes[1], {3, 0, -1, -1}),
            (Numbers{7976312,   25015455,  32662253,  59094253,  72310297,  85156133,
                     108102275, 119576138, 131069797, 145343601, 172623612, 185170695,
                     205084594, 221545257, 227646200, 251014423, 260231155, 280143022,
                     290296486, 312934632, 326604373, 350427914, 363307643, 379703671}));
  // Begin of sentence, User, "Hello", Assistant, </think>.
  EXPECT_EQ(rows(hashes[0], {128822, 128804, 19923, 128803}),
            (Numbers{6145177,   29200083,  42970516,  50089365,  66620613,  80091853,
                     104320258, 115133545, 140672190, 155426284, 173764545, 191723404,
                     205625463, 217413342, 227140917, 242685749, 264981155, 280593827,
                     298822618, 316327078, 328141114, 346078762, 353716619, 375209757}));
}

TEST(EngramHash, SharesNoPrimeBetweenLayersOfASmallTable) {
  checkpoint::ModelConfig config = checkpoint::preset_config("nano", {});
  config.engram_vocab_size = 97;
  std::vector<int64_t> all;
  for (const EngramHash& hash : engram_hashes(config)) {
    all.insert(all.end(), hash.primes.begin(), hash.primes.end());
  }
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front(), 97);
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

}  // namespace
}  // namespace deepinfer::model
