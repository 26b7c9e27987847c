#include "tests/engine/golden_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/json.h"
#include "deepinfer/engine.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

namespace deepinfer::testing {
namespace {

using Values = std::vector<double>;

std::unique_ptr<Engine> make_engine(const std::filesystem::path& model, Mode mode) {
  return Engine::create({.model = model,
                         .backend = mode == Mode::kReleasedReference ? "reference" : "auto",
                         .numerics = mode == Mode::kExact ? "exact" : "engine",
                         .prefill_chunk = 128,
                         .max_batch = 2,
                         .kv_tokens = 2048});
}

std::vector<int32_t> token_ids(const Golden& golden, std::string_view name) {
  const std::vector<int64_t> ids = golden.ints(name);
  return {ids.begin(), ids.end()};
}

template <typename T>
Values widened(const std::vector<std::byte>& bytes) {
  std::vector<T> typed(bytes.size() / sizeof(T));
  std::memcpy(typed.data(), bytes.data(), bytes.size());
  return {typed.begin(), typed.end()};
}

Values values_of(const TraceTensor& tensor) {
  if (tensor.dtype == "F32") return widened<float>(tensor.data);
  if (tensor.dtype == "I32") return widened<int32_t>(tensor.data);
  if (tensor.dtype == "I64") return widened<int64_t>(tensor.data);
  return widened<uint8_t>(tensor.data);
}

Values values_of(const Golden& golden, const std::string& name) {
  if (golden.view(name).dtype() == DType::kF32) {
    const std::vector<float> values = golden.floats(name);
    return {values.begin(), values.end()};
  }
  const std::vector<int64_t> values = golden.ints(name);
  return {values.begin(), values.end()};
}

/// Order statistics of |difference|, as the noise files list them.
struct Difference {
  double max = 0, p99 = 0, median = 0;
};

Difference difference(const Values& got, const Values& want) {
  if (want.empty()) return {};
  Values d(want.size());
  // NaN and infinities that do not agree must not sort to a harmless place.
  std::ranges::transform(got, want, d.begin(), [](double a, double b) {
    const double e = a == b ? 0 : std::fabs(a - b);
    return std::isnan(e) ? INFINITY : e;
  });
  std::ranges::sort(d);
  return {.max = d.back(), .p99 = d[(d.size() - 1) * 99 / 100], .median = d[(d.size() - 1) / 2]};
}

double largest(const Values& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::fabs(value));
  return result;
}

/// A golden trace beside the engine's.
class TraceComparison {
 public:
  TraceComparison(const Golden& golden, const Json& noise, std::vector<TraceTensor> trace,
                  Mode mode)
      : golden_(golden), noise_(noise), mode_(mode) {
    for (TraceTensor& tensor : trace) {
      std::string name = tensor.name;
      trace_.emplace(std::move(name), std::move(tensor));
    }
  }

  void expect_tensor(const std::string& name) const {
    SCOPED_TRACE(name);
    const std::string base = name.substr(0, name.find("@rows"));
    const TraceTensor* tensor = find(base);
    ASSERT_NE(tensor, nullptr) << "not in the engine's trace";
    Values got = values_of(*tensor);
    const Values want = values_of(golden_, name);
    if (name != base) got = rows_of(got, base, tensor->shape.at(0));
    ASSERT_EQ(got.size(), want.size());
    if (name.ends_with("_bits")) {
      expect_bits(base, got, want);
    } else if (name.ends_with("router_idx")) {
      expect_experts(base, got, want);
    } else if (golden_.view(name).dtype() == DType::kF32) {
      expect_near(base, got, want);
    } else {
      EXPECT_EQ(got, want);
    }
  }

 private:
  const TraceTensor* find(const std::string& base) const {
    for (const std::string& name : {base, base + "@rows"}) {
      if (const auto found = trace_.find(name); found != trace_.end()) return &found->second;
    }
    return nullptr;
  }

  /// The rows that the golden file keeps: positions, or entries as far as there are so many.
  Values rows_of(const Values& all, const std::string& base, int64_t num_rows) const {
    const char* list =
        base.ends_with("index_q") && golden_.has("rows_index_q") ? "rows_index_q" : "rows";
    const size_t width = all.size() / static_cast<size_t>(num_rows);
    Values rows;
    for (const int64_t row : golden_.ints(list)) {
      if (row >= num_rows) continue;
      const auto begin = all.begin() + row * static_cast<int64_t>(width);
      rows.insert(rows.end(), begin, begin + static_cast<int64_t>(width));
    }
    return rows;
  }

  void expect_near(const std::string& base, const Values& got, const Values& want) const {
    ASSERT_TRUE(noise_.contains(base));
    const auto noise = noise_.at(base).get<std::array<double, 3>>();  // max, p99, median
    const Difference d = difference(got, want);
    if (mode_ == Mode::kExact) {
      // Few rows are kept, so one flipped code sets their tail, whether the jitter flipped one or
      // not: only the median is tight. Rows late in the sequence show up to five times the noise of
      // all rows.
      EXPECT_LE(d.median, 8 * noise[2] + 2e-6);
      EXPECT_LE(d.p99, 2 * noise[0] + 1e-4 * largest(want));
      return;
    }
    // Where no jitter got through, a rounding may still flip, which moves a row: the limit is that
    // of a stage, 5 % of the largest magnitude.
    const double flip = noise[0] == 0 ? 0.05 * largest(want) : 0;
    EXPECT_LE(d.median, 2 * noise[2] + 1e-7);
    EXPECT_LE(d.p99, 2 * noise[1] + flip + 1e-6);
    EXPECT_LE(d.max, 2 * noise[0] + flip + 1e-5);
  }

  /// How many entries of a choice may differ.
  int64_t allowed_changes(const std::string& key) const {
    return 2 * noise_.at(key).at(0).get<int64_t>();
  }

  /// A choice of row `row` may differ only if the cut was close.
  void expect_close_cut(const std::string& margin, const std::string& scores, size_t row) const {
    if (!golden_.has(margin)) return;
    const double noise = noise_.at(scores).at(0).get<double>();
    EXPECT_LT(golden_.floats(margin).at(row), 2 * noise + 1e-5) << "row " << row;
  }

  void expect_bits(const std::string& base, const Values& got, const Values& want) const {
    const std::string layer = base.substr(0, base.rfind('.') + 1);
    const bool candidates = base.ends_with("candidates_bits");
    const auto width = static_cast<size_t>(golden_.shape(base)[1]);
    int64_t changed = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == want[i]) continue;
      changed += std::popcount(static_cast<unsigned>(got[i]) ^ static_cast<unsigned>(want[i]));
      expect_close_cut(layer + (candidates ? "candidate_margin" : "select_margin"),
                       layer + "index_scores", i / width);
    }
    EXPECT_LE(changed, allowed_changes(layer + (candidates ? "candidates" : "selected")));
  }

  void expect_experts(const std::string& base, const Values& got, const Values& want) const {
    const std::string layer = base.substr(0, base.rfind('.') + 1);
    const auto k = static_cast<int64_t>(golden_.shape(base)[1]);
    int64_t changed = 0;
    for (int64_t row = 0; row * k < static_cast<int64_t>(want.size()); ++row) {
      const auto mine = got.begin() + row * k;
      const int64_t missing = std::count_if(
          want.begin() + row * k, want.begin() + (row + 1) * k,
          [&](double expert) { return std::find(mine, mine + k, expert) == mine + k; });
      if (missing > 0) {
        expect_close_cut(layer + "router_margin", layer + "router_scores",
                         static_cast<size_t>(row));
      }
      changed += missing;
    }
    EXPECT_LE(changed, allowed_changes(base));
  }

  const Golden& golden_;
  const Json& noise_;
  Mode mode_;
  std::map<std::string, TraceTensor> trace_;
};

/// Not intermediates of the forward pass, or derived from others.
bool is_trace_tensor(const std::string& name) {
  return name != "ids" && !name.starts_with("rows") && !name.starts_with("draft") &&
         !name.starts_with("top2") && name != "logsumexp" && !name.ends_with("margin");
}

}  // namespace

void expect_trace(const std::filesystem::path& model, const std::filesystem::path& golden_path,
                  const std::filesystem::path& noise_path, Mode mode) {
  SCOPED_TRACE(golden_path);
  const Golden golden(golden_path);
  const Json noise = read_json_file(noise_path, 1 << 20);
  const std::unique_ptr<Engine> engine = make_engine(model, mode);
  const TraceComparison comparison(
      golden, noise, engine->score(token_ids(golden, "ids"), {.trace = true}).trace, mode);
  const checkpoint::SafetensorsFile file = checkpoint::SafetensorsFile::open(golden_path);
  int64_t compared = 0;
  for (const checkpoint::HeaderEntry& entry : file.entries()) {
    if (!is_trace_tensor(entry.name)) continue;
    comparison.expect_tensor(entry.name);
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

namespace {

/// Where the limits of a text come from: tests/data/README.md, "How to compare".
struct TextLimits {
  double median, p99, logsumexp, other_best, other_firm_best, greedy_margin;
};

TextLimits text_limits(Mode mode) {
  // The exact mode has no rule for the tail of the logits: a flipped choice moves single ones far.
  if (mode == Mode::kExact) return {0.01, INFINITY, 0.01, 0.08, 0.01, 0.05};
  return {0.2, 1.4, 0.2, 0.08, 0.01, 0.5};
}

/// The logits of the golden best two tokens of every position.
Values best_logits_of(const Golden& golden, const std::vector<float>& logits) {
  const std::vector<int64_t> ids = golden.ints("top2_ids");
  const size_t vocab = logits.size() / (ids.size() / 2);
  Values values;
  for (size_t i = 0; i < ids.size(); ++i) {
    values.push_back(logits[i / 2 * vocab + static_cast<size_t>(ids[i])]);
  }
  return values;
}

void expect_best_tokens(const Golden& golden, const std::vector<float>& logits,
                        const TextLimits& limits) {
  const std::vector<int64_t> best = golden.ints("top2_ids");
  const std::vector<float> best_logits = golden.floats("top2_logits");
  const size_t count = best.size() / 2;
  const size_t vocab = logits.size() / count;
  Values logsumexp;
  double other = 0;
  double other_firm = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::span row = std::span(logits).subspan(i * vocab, vocab);
    const auto top = std::ranges::max_element(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit - *top));
    logsumexp.push_back(*top + std::log(sum));
    if (top - row.begin() == best[2 * i]) continue;
    ++other;
    if (best_logits[2 * i] - best_logits[2 * i + 1] > 0.5F) ++other_firm;
  }
  EXPECT_LE(other, limits.other_best * static_cast<double>(count));
  EXPECT_LE(other_firm, limits.other_firm_best * static_cast<double>(count));
  EXPECT_LE(difference(logsumexp, values_of(golden, "logsumexp")).median, limits.logsumexp);
}

void expect_greedy(Engine& engine, const Golden& golden, double margin) {
  OutputStream stream = engine.submit({token_ids(golden, "ids"), greedy(64)});
  const std::vector<GeneratedToken> tokens = collect(stream).tokens;
  const std::vector<int64_t> want = golden.ints("greedy_ids");
  const std::vector<float> margins = golden.floats("greedy_margin");
  for (size_t i = 0; i < want.size() && margins[i] >= margin; ++i) {
    ASSERT_LT(i, tokens.size());
    ASSERT_EQ(tokens[i].id, want[i]) << "step " << i;
    if (want[i] == engine.model_info().eos_token_id) break;
  }
}

}  // namespace

void expect_text(const std::filesystem::path& model, const std::filesystem::path& golden_path,
                 Mode mode) {
  SCOPED_TRACE(golden_path);
  const Golden golden(golden_path);
  const TextLimits limits = text_limits(mode);
  const std::unique_ptr<Engine> engine = make_engine(model, mode);
  const std::vector<float> logits =
      engine->score(token_ids(golden, "ids"), {.logits = true}).logits;
  const auto vocab = golden.shape("logits@rows")[1];
  Values at_rows;
  for (const int64_t row : golden.ints("rows")) {
    const auto begin = logits.begin() + row * vocab;
    at_rows.insert(at_rows.end(), begin, begin + vocab);
  }
  const Difference d = difference(at_rows, values_of(golden, "logits@rows"));
  EXPECT_LE(d.median, limits.median);
  // One flipped rounding moves all logits of a row, so the tail of a prompt takes more than two
  // rows; the logits of the best tokens are there for every position.
  if (golden.shape("rows")[0] > 2) {
    EXPECT_LE(d.p99, limits.p99);
  }
  EXPECT_LE(difference(best_logits_of(golden, logits), values_of(golden, "top2_logits")).p99,
            limits.p99);
  expect_best_tokens(golden, logits, limits);
  expect_greedy(*engine, golden, limits.greedy_margin);
}

}  // namespace deepinfer::testing
