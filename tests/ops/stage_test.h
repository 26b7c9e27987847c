#pragma once

#include <fmt/core.h>

#include "tests/ops/suite.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {

/// Operations of a layer from golden inputs, with the weights of a small random checkpoint.
class StageTest : public BackendTest {
 protected:
  void SetUp() override {
    if (suite().models.empty()) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
  }

  /// Runs `body` for every layer of every model.
  void for_each_layer(const std::function<void()>& body) {
    for (const StageModel& model : suite().models) {
      open(model);
      for (layer_ = 0; layer_ < model.num_layers; ++layer_) {
        SCOPED_TRACE(fmt::format("{} layer {}", model.name, layer_));
        body();
      }
    }
  }
  void open(const StageModel& model) {
    model_ = &model;
    weights_.emplace(model.checkpoint);
    trace_.emplace(is_exact() ? model.exact_trace : model.released_trace);
    rows_ = trace_->ints("rows");
    const Shape embedding = weights_->shape("embed.weight");
    d_ = embedding[1];
  }

  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }
  std::string in_layer(const std::string& name) const {
    return fmt::format("layers.{}.{}", layer_, name);
  }
  bool has(const std::string& name) const {
    return trace_->has(name) || trace_->has(name + "@rows");
  }
  /// A traced tensor at the traced rows, whether the trace holds all positions or those only.
  std::vector<float> at_rows(const std::string& name) const {
    if (trace_->has(name + "@rows")) return trace_->floats(name + "@rows");
    return select_rows(trace_->floats(name), trace_->shape(name));
  }
  template <typename T>
  std::vector<T> select_rows(const std::vector<T>& all, const Shape& shape) const {
    std::vector<T> selected;
    const int64_t size = shape.num_elements() / shape[0];
    for (const int64_t row : rows_) {
      selected.insert(selected.end(), all.begin() + row * size, all.begin() + (row + 1) * size);
    }
    return selected;
  }

  TensorView act(const std::string& name, const Shape& shape) {
    return operands_.put_act(at_rows(name), shape);
  }
  TensorView f32(const std::string& name, const Shape& shape) {
    return operands_.put_f32(at_rows(name), shape);
  }
  TensorView plain(const std::string& name) { return operands_.place(weights_->view(name)).weight; }
  QuantView fp8(const std::string& name) { return operands_.place(weights_->fp8(in_layer(name))); }
  QuantView fp4(const std::string& name) { return operands_.place(weights_->fp4(in_layer(name))); }
  Rope rope() {
    const bool compressed = model_->ratios[static_cast<size_t>(layer_)] > 0;
    const std::vector<float> inv_freq =
        compressed ? rope_inv_freq(64, 160000, model_->yarn) : rope_inv_freq(64, 10000);
    return {operands_.put_f32(inv_freq, {32})};
  }

  /// Activations: 1e-5 of the row's maximum in exact mode; few bf16 (or FP8) steps otherwise.
  void expect_act(const TensorView& got, const std::string& name, double share = 0.01) {
    expect_act(operands_.floats(got), got.dim(got.shape().rank() - 1), name, share);
  }
  void expect_act(const std::vector<float>& got, int64_t row_size, const std::string& name,
                  double share = 0.01) {
    const std::vector<float> want = at_rows(name);
    EXPECT_TRUE(is_exact() ? testing::close_by_row(got, want, row_size, 1e-5F)
                           : testing::few_changed(got, want, row_size, share, 0.05F))
        << name;
  }
  void expect_f32(const TensorView& got, const std::string& name, float released_tolerance) {
    const int64_t row_size = got.shape().num_elements() / got.dim(0);
    EXPECT_TRUE(testing::close_by_row(operands_.floats(got), at_rows(name), row_size,
                                      is_exact() ? 1e-5F : released_tolerance))
        << name;
  }

  const StageModel* model_ = nullptr;
  std::optional<testing::Golden> weights_;
  std::optional<testing::Golden> trace_;
  std::vector<int64_t> rows_;
  int64_t d_ = 0;
  int64_t layer_ = 0;
};

}  // namespace deepinfer::ops
