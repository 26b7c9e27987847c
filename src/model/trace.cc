#include "model/trace.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "tensor/quantize.h"

namespace deepinfer::model {
namespace {

size_t count_of(const std::vector<int64_t>& shape) {
  return static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
}

/// Elements of a row.
int64_t width_of(const TensorView& tensor) {
  return tensor.dim(0) == 0 ? 0 : tensor.shape().num_elements() / tensor.dim(0);
}

/// Row `i` of a bf16 or fp32 tensor whose rows are contiguous.
void copy_row(const TensorView& tensor, int64_t i, float* out) {
  const int64_t width = width_of(tensor);
  if (tensor.dtype() == DType::kF32) {
    std::copy_n(tensor.row<const float>(i), width, out);
    return;
  }
  const auto* row = tensor.row<const BFloat16>(i);
  std::transform(row, row + width, out, [](BFloat16 value) { return to_float(value); });
}

std::vector<int64_t> shape_of(const TensorView& tensor, int64_t rows) {
  const auto dims = tensor.shape().dims();
  std::vector<int64_t> shape(dims.begin(), dims.end());
  shape[0] = rows;
  return shape;
}

}  // namespace

TensorView Trace::on_host(const TensorView& tensor, size_t slot) {
  if (tensor.device().kind == DeviceKind::kHost) return tensor;
  if (copies_.size() <= slot) copies_.resize(slot + 1);
  Tensor& copy = copies_[slot];
  copy = Tensor(tensor.dtype(), tensor.shape());
  // Row by row: views may leave gaps between rows, copies may not.
  for (int64_t i = 0; i < tensor.dim(0); ++i) backend_.copy(tensor.at(i), copy.view().at(i));
  backend_.synchronize();
  return copy.view();
}

float* Trace::add_f32(const std::string& name, std::vector<int64_t> shape) {
  std::vector<std::byte> data(count_of(shape) * sizeof(float));
  tensors_.push_back({name, DType::kF32, std::move(shape), std::move(data)});
  return reinterpret_cast<float*>(tensors_.back().data.data());
}

void Trace::add(const std::string& name, const TensorView& traced) {
  const TensorView tensor = on_host(traced);
  const int64_t rows = tensor.dim(0);
  if (tensor.dtype() == DType::kF32 || tensor.dtype() == DType::kBF16) {
    float* out = add_f32(name, shape_of(tensor, rows));
    for (int64_t i = 0; i < rows; ++i) copy_row(tensor, i, out + i * width_of(tensor));
    return;
  }
  const auto* bytes = static_cast<const std::byte*>(tensor.data());
  tensors_.push_back({name, tensor.dtype(), shape_of(tensor, rows),
                      std::vector<std::byte>(bytes, bytes + tensor.num_bytes())});
}

void Trace::add_entry_rows(const std::string& name, const TensorView& traced, int32_t ratio) {
  const TensorView tensor = on_host(traced);
  const int64_t entries = tensor.dim(0) / ratio;
  float* out = add_f32(name, shape_of(tensor, entries));
  for (int64_t e = 0; e < entries; ++e) {
    copy_row(tensor, (e + 1) * ratio - 1, out + e * width_of(tensor));
  }
}

void Trace::add_window(const std::string& name, const TensorView& codes, const TensorView& scales) {
  const auto dim = static_cast<size_t>(codes.dim(1));
  const TensorView host_codes = on_host(codes, 0);
  const TensorView host_scales = on_host(scales, 1);
  float* out = add_f32(name, shape_of(codes, codes.dim(0)));
  for (int64_t i = 0; i < codes.dim(0); ++i) {
    dequantize_fp8(host_codes.row<const uint8_t>(i), host_scales.row<const uint8_t>(i),
                   {out + static_cast<size_t>(i) * dim, dim});
  }
}

void Trace::add_pages(const std::string& prefix, const ops::CompressedPages& pages,
                      const ops::SlotState& slots, int64_t num_tokens) {
  const int64_t entries = num_tokens / pages.ratio;
  const int64_t per_page = pages.entry_codes.dim(1);
  const auto dim = static_cast<size_t>(pages.entry_codes.dim(2) * 2);
  const auto key_dim = static_cast<size_t>(pages.key_codes.dim(2) * 2);
  const TensorView page_table = on_host(slots.page_table.at(0), 0);
  float* kv = add_f32(prefix + "compressed_kv", {entries, static_cast<int64_t>(dim)});
  float* keys = add_f32(prefix + "index_k", {entries, static_cast<int64_t>(key_dim)});
  for (int64_t first = 0; first < entries; first += per_page) {
    const int64_t page = page_table.as<const int32_t>()[first / per_page];
    const TensorView entry_codes = on_host(pages.entry_codes.at(page), 1);
    const TensorView entry_scales = on_host(pages.entry_scales.at(page), 2);
    const TensorView key_codes = on_host(pages.key_codes.at(page), 3);
    const TensorView key_scales = on_host(pages.key_scales.at(page), 4);
    for (int64_t i = 0; i < std::min(per_page, entries - first); ++i) {
      const auto e = static_cast<size_t>(first + i);
      dequantize_fp4_kv(entry_codes.row<const uint8_t>(i), entry_scales.row<const uint8_t>(i),
                        {kv + e * dim, dim});
      dequantize_fp4_index(key_codes.row<const uint8_t>(i), key_scales.row<const uint8_t>(i),
                           {keys + e * key_dim, key_dim});
    }
  }
}

void Trace::add_bits(const std::string& name, const TensorView& traced_lists,
                     const TensorView& traced_counts, int64_t block_size, int64_t num_entries) {
  const TensorView lists = on_host(traced_lists, 0);
  const TensorView counts = on_host(traced_counts, 1);
  const int64_t rows = lists.dim(0);
  const int64_t row_bytes = (num_entries + 7) / 8;
  std::vector<std::byte> bits(static_cast<size_t>(rows * row_bytes));
  for (int64_t row = 0; row < rows; ++row) {
    for (int32_t i = 0; i < counts.as<const int32_t>()[row]; ++i) {
      const int64_t first = lists.row<const int32_t>(row)[i] * block_size;
      for (int64_t e = first; e < std::min(first + block_size, num_entries); ++e) {
        bits[static_cast<size_t>(row * row_bytes + e / 8)] |= std::byte(1U << (e % 8));
      }
    }
  }
  tensors_.push_back({name, DType::kU8, {rows, row_bytes}, std::move(bits)});
}

void Trace::add_joined(const std::string& name, const std::vector<TensorView>& parts) {
  const int64_t rows = parts.front().dim(0);
  const int64_t width = width_of(parts.front());
  const auto num_parts = static_cast<int64_t>(parts.size());
  float* out = add_f32(name, {rows, num_parts * width});
  for (int64_t part = 0; part < num_parts; ++part) {
    const TensorView host = on_host(parts[static_cast<size_t>(part)]);
    for (int64_t row = 0; row < rows; ++row) {
      copy_row(host, row, out + (row * num_parts + part) * width);
    }
  }
}

void Trace::add_stacked(const std::string& name, const TensorView& traced) {
  const TensorView tensor = on_host(traced);
  const int64_t rows = tensor.dim(0);
  const int64_t width = tensor.dim(1);
  auto found = std::ranges::find(tensors_, name, &TracedTensor::name);
  if (found == tensors_.end()) {
    tensors_.push_back({name, DType::kI64, {rows, 0, width}, {}});
    found = tensors_.end() - 1;
  }
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(int64_t);
  const size_t old_bytes = static_cast<size_t>(found->shape[1]) * row_bytes;
  std::vector<std::byte> data;
  for (int64_t row = 0; row < rows; ++row) {
    const auto* old_row = found->data.data() + static_cast<size_t>(row) * old_bytes;
    data.insert(data.end(), old_row, old_row + old_bytes);
    const auto* new_row = reinterpret_cast<const std::byte*>(tensor.row<const int64_t>(row));
    data.insert(data.end(), new_row, new_row + row_bytes);
  }
  ++found->shape[1];
  found->data = std::move(data);
}

}  // namespace deepinfer::model
