#include "tests/support/operands.h"

namespace deepinfer::testing {

TensorView Operands::put(const TensorView& host) {
  const TensorView device = zeros(host.dtype(), host.shape());
  backend_.copy(host, device);
  backend_.synchronize();  // the caller may drop `host`
  return device;
}

TensorView Operands::put_act(std::span<const float> values, const Shape& shape) {
  return put(to_tensor(values, act(), shape));
}

TensorView Operands::put_f32(std::span<const float> values, const Shape& shape) {
  return put(to_tensor(values, DType::kF32, shape));
}

TensorView Operands::put_i32(std::span<const int32_t> values, const Shape& shape) {
  return put(to_tensor(values, shape));
}

QuantView Operands::place(const QuantView& stored) {
  QuantView placed = stored;
  placed.weight = backend_.place(stored.weight);
  if (!stored.scale.empty()) placed.scale = backend_.place(stored.scale);
  return placed;
}

TensorView Operands::zeros(DType dtype, const Shape& shape) {
  return owned_.emplace_back(backend_.allocate(dtype, shape)).view();
}

Tensor Operands::get(const TensorView& device) {
  Tensor host(device.dtype(), device.shape());
  backend_.copy(device, host);
  backend_.synchronize();
  return host;
}

std::vector<int64_t> Operands::ints(const TensorView& device) {
  const Tensor host = get(device);
  const int64_t count = host.shape().num_elements();
  if (device.dtype() == DType::kI64) {
    return {host.as<const int64_t>(), host.as<const int64_t>() + count};
  }
  if (size_of(device.dtype()) == 1) {
    return {host.as<const uint8_t>(), host.as<const uint8_t>() + count};
  }
  return {host.as<const int32_t>(), host.as<const int32_t>() + count};
}

}  // namespace deepinfer::testing
