#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "base/error.h"

namespace deepinfer {
namespace {

TEST(DType, SpellingsRoundTrip) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kE4M3, DType::kE8M0, DType::kI8,
                            DType::kU8, DType::kU16, DType::kI32, DType::kI64}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(to_string(DType::kE2M1x2), "I8");
  EXPECT_EQ(parse_dtype("F64"), std::nullopt);
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape({3, 0, 5}).num_elements(), 0);
  EXPECT_EQ(Shape({3, 4}).to_string(), "[3, 4]");
  EXPECT_FALSE(Shape({3}) == Shape({3, 1}));
}

TEST(Shape, RefusesRankSix) {
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1}), Error);
}

TEST(Tensor, IsZeroAndAligned) {
  const Tensor tensor(DType::kI32, {3, 5});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.as<int32_t>()) % 64, 0U);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(tensor.as<int32_t>()[i], 0);
  EXPECT_FALSE(Tensor(DType::kF32, {0, 4}).view().empty());
  EXPECT_TRUE(TensorView().empty());
}

TEST(TensorView, AccessChecksTheType) {
  const Tensor tensor(DType::kBF16, {2});
  EXPECT_NO_THROW(tensor.as<BFloat16>());
  EXPECT_NO_THROW(tensor.as<uint16_t>());
  EXPECT_THROW(tensor.as<float>(), Error);
  EXPECT_THROW(tensor.as<uint8_t>(), Error);
}

TEST(TensorView, SlicesAndRowsFollowStrides) {
  Tensor tensor(DType::kI32, {4, 2, 3});
  std::iota(tensor.as<int32_t>(), tensor.as<int32_t>() + 24, 0);
  EXPECT_EQ(tensor.view().slice(1, 2).row<int32_t>(1)[0], 12);
  EXPECT_EQ(tensor.view().at(3).row<int32_t>(1)[2], 23);
  const TensorView column = tensor.view().select(1, 1);
  EXPECT_EQ(column.shape(), Shape({4, 3}));
  EXPECT_EQ(column.row<int32_t>(2)[0], 15);
  EXPECT_EQ(column.slice(1, 2).row<int32_t>(0)[1], 10);
}

TEST(TensorView, RefusesWhatIsOutside) {
  const Tensor tensor(DType::kI32, {4, 6});
  EXPECT_THROW(tensor.view().slice(3, 2), Error);
  EXPECT_THROW(tensor.view().slice(-1, 1), Error);
  EXPECT_THROW(tensor.view().at(4), Error);
  EXPECT_THROW(tensor.view().select(2, 0), Error);
  EXPECT_THROW(tensor.view().reshape({5, 5}), Error);
}

TEST(TensorView, ReshapesContiguousViewsOnly) {
  const Tensor tensor(DType::kI32, {4, 6});
  EXPECT_EQ(tensor.view().reshape({2, 12}).stride(0), 12);
  EXPECT_NO_THROW(tensor.view().slice(1, 2).reshape({12}));
  const TensorView strided = tensor.view().reshape({4, 2, 3}).select(1, 0);
  EXPECT_THROW(strided.reshape({12}), Error);
}

TEST(QuantView, CountsFp4ColumnsAsValues) {
  const Tensor bytes(DType::kE2M1x2, {8, 16});
  const QuantView weight{bytes.view(), {}, 1};
  EXPECT_EQ(weight.rows(), 8);
  EXPECT_EQ(weight.cols(), 32);
}

}  // namespace
}  // namespace deepinfer
