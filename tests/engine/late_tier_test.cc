#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "cache/cache_tiers.h"
#include "engine/setup.h"
#include "engine/step_loop.h"
#include "engine/step_thread.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

// F03: requests that leave while their pages are on the way from a tier that is late, or silent.
namespace deepinfer::engine {
namespace {

using testing::Random;

constexpr uint64_t kSeed = 20261203;
constexpr int64_t kPages = 24;

/// Host memory that answers late, or not before it is told to.
class LateTier final : public cache::Tier {
 public:
  enum class Mode { kAtOnce, kLate, kSilent, kNoMemory };

  bool contains(const cache::TierKey& key) const override {
    if (mode_ == Mode::kNoMemory) throw std::bad_alloc();
    return memory_.contains(key);
  }
  cache::TierBytes get(const cache::TierKey& key) override {
    std::unique_lock lock(mutex_);
    const auto is_free = [this] { return mode_ != Mode::kSilent; };
    if (mode_ == Mode::kLate) changed_.wait_for(lock, std::chrono::milliseconds(2));
    changed_.wait(lock, is_free);
    return memory_.get(key);
  }
  void put(const cache::TierKey& key, const cache::TierBytes& bytes) override {
    memory_.put(key, bytes);
  }
  int64_t num_bytes() const override { return memory_.num_bytes(); }

  void set(Mode mode) {
    const std::lock_guard lock(mutex_);
    mode_ = mode;
    changed_.notify_all();
  }

 private:
  cache::HostTier memory_{int64_t{64} << 20};
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::atomic<Mode> mode_ = Mode::kAtOnce;
};

/// An engine's parts around a tier of the test, stepped by the test's own thread.
class Harness {
 public:
  Harness() {
    auto tier = std::make_unique<LateTier>();
    tier_ = tier.get();
    std::vector<std::unique_ptr<cache::Tier>> tiers;
    tiers.push_back(std::move(tier));
    tiers_ = std::make_unique<cache::CacheTiers>(cache::TierOptions{.identity = "test"},
                                                 std::move(tiers), prefixes_, shape_, [] {});
    loop_ =
        std::make_unique<StepLoop>(executor_, prefixes_, limits_,
                                   restart_rules(options_, checkpoint_->config()), tiers_.get());
  }

  std::shared_ptr<OutputStream::State> start(scheduler::RequestId id,
                                             const std::vector<int32_t>& prompt) {
    auto stream = std::make_shared<OutputStream::State>();
    Request request{.prompt = prompt, .sampling = testing::greedy(3)};
    request.sampling.ignore_eos = true;
    loop_->start(id, std::make_unique<RequestState>(std::move(request), stream, 1, 3, -1, nullptr));
    return stream;
  }
  void step() {
    loop_->land();
    loop_->launch();
  }
  void run_until_idle() {
    while (!loop_->idle()) step();
    loop_->drain();
  }
  std::vector<int32_t> answer(const std::vector<int32_t>& prompt, scheduler::RequestId id) {
    const auto stream = start(id, prompt);
    run_until_idle();
    return ids(*stream);
  }
  static std::vector<int32_t> ids(OutputStream::State& stream) {
    std::vector<int32_t> result;
    while (std::optional<OutputDelta> delta = stream.pop(/*wait=*/false)) {
      for (const GeneratedToken& token : delta->tokens) result.push_back(token.id);
      EXPECT_EQ(delta->error, "");
    }
    return result;
  }
  /// Everything given back once transfers under way have ended.
  void expect_nothing_held() {
    loop_->save_cached();
    tiers_->finish_loads(cache::CacheTiers::Clock::now());
    loop_->save_cached();
    EXPECT_EQ(prefixes_.num_held(), 0) << "seed " << kSeed;
    EXPECT_EQ(prefixes_.snapshots().num_held(), 0) << "seed " << kSeed;
    EXPECT_EQ(prefixes_.num_free() + prefixes_.num_cached(), prefixes_.size());
  }

  StepLoop& loop() { return *loop_; }
  LateTier& tier() { return *tier_; }
  cache::CacheTiers& tiers() { return *tiers_; }

 private:
  EngineOptions options_{.model = testing::data_path("nano-d"),
                         .backend = "cpu",
                         .threads = 1,
                         .max_batch = 4,
                         .max_model_len = 512,
                         .snapshots = 4,
                         .snapshot_interval = 64};
  std::shared_ptr<const checkpoint::Checkpoint> checkpoint_ =
      checkpoint::Checkpoint::open(options_.model, {});
  ThreadPool pool_{1};
  std::unique_ptr<ops::Backend> backend_ =
      make_backend(options_, checkpoint_->config(),
                   {.kv_tokens = kPages * cache::kPageTokens, .max_model_len = 512}, pool_);
  cache::PrefixCache prefixes_{{.num_pages = kPages,
                                .page_tokens = cache::kPageTokens,
                                .num_snapshot_units = snapshot_units(options_),
                                .identity = "test",
                                .record_changes = true}};
  scheduler::Limits limits_ = scheduler_limits(options_, checkpoint_->config());
  cache::CacheShape shape_ = [this] {
    cache::CacheShape shape = model::Model::cache_shape(checkpoint_->config());
    shape.num_slots = options_.max_batch;
    shape.num_pages = kPages;
    shape.num_snapshot_units = snapshot_units(options_);
    shape.max_slot_tokens = options_.max_model_len;
    return shape;
  }();
  Runner runner_{*checkpoint_,         *backend_, load_token_map(*checkpoint_, nullptr),
                 step_limits(limits_), shape_,    model::bind_weights(*checkpoint_, *backend_)};
  StepThread executor_{runner_, [] {}, [] {}};
  LateTier* tier_ = nullptr;
  std::unique_ptr<cache::CacheTiers> tiers_;
  std::unique_ptr<StepLoop> loop_;
};

TEST(LateTier, AbortsWhilePagesAreOnTheWayLeaveNothingBehind) {
  Harness harness;
  Random random(kSeed);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> answers;
  scheduler::RequestId id = 0;
  for (int i = 0; i < 10; ++i) {
    prompts.push_back(testing::random_prompt(random, 150 + random.below(200), 512));
    answers.push_back(harness.answer(prompts.back(), ++id));
  }
  harness.tiers().flush();
  harness.tier().set(LateTier::Mode::kLate);
  int64_t num_loads = 0;
  for (int round = 0; round < 100; ++round) {
    const auto chosen = static_cast<size_t>(random.below(10));
    const auto gone = harness.start(++id, prompts[chosen]);
    num_loads += harness.loop().is_loading() ? 1 : 0;
    for (int64_t steps = random.below(4); steps > 0; --steps) harness.step();
    harness.loop().cancel(id);
    harness.loop().cancel(id);  // twice: the second finds nobody
    if (round % 10 != 0) continue;
    EXPECT_EQ(harness.answer(prompts[chosen], ++id), answers[chosen]) << "seed " << kSeed;
  }
  EXPECT_GT(num_loads, 10) << "seed " << kSeed;
  harness.tier().set(LateTier::Mode::kAtOnce);
  harness.run_until_idle();
  harness.tiers().flush();
  harness.expect_nothing_held();
}

TEST(LateTier, ARequestStartsWithoutPagesThatNeverCome) {
  Harness harness;
  Random random(kSeed);
  const std::vector<int32_t> prompt = testing::random_prompt(random, 300, 512);
  const std::vector<int32_t> want = harness.answer(prompt, 1);
  // Other prompts push it out of the pool.
  for (scheduler::RequestId id = 2; id < 10; ++id) {
    harness.answer(testing::random_prompt(random, 300, 512), id);
  }
  harness.tiers().flush();
  harness.tier().set(LateTier::Mode::kSilent);
  const auto stream = harness.start(20, prompt);
  const auto gone = harness.start(21, prompt);
  EXPECT_TRUE(harness.loop().is_loading());
  harness.loop().cancel(21);
  harness.run_until_idle();  // after CacheTiers::kLoadTimeout
  EXPECT_EQ(Harness::ids(*stream), want);
  harness.tier().set(LateTier::Mode::kAtOnce);
  harness.tiers().flush();
  harness.expect_nothing_held();
}

TEST(LateTier, NoMemoryForTheTiersLosesNoRequest) {
  Harness harness;
  Random random(kSeed);
  const std::vector<int32_t> prompt = testing::random_prompt(random, 300, 512);
  const std::vector<int32_t> want = harness.answer(prompt, 1);
  harness.tiers().flush();
  harness.tier().set(LateTier::Mode::kNoMemory);
  for (scheduler::RequestId id = 2; id < 10; ++id) {
    harness.answer(testing::random_prompt(random, 300, 512), id);
  }
  EXPECT_EQ(harness.answer(prompt, 20), want);
  harness.tier().set(LateTier::Mode::kAtOnce);
  EXPECT_EQ(harness.answer(prompt, 21), want);
  harness.expect_nothing_held();
}

}  // namespace
}  // namespace deepinfer::engine
