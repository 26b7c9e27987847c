#include "checkpoint/safetensors_writer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace deepinfer::checkpoint {
namespace {

std::vector<TensorSpec> in_file_order(std::vector<TensorSpec> tensors) {
  std::ranges::stable_sort(tensors, std::greater<>(),
                           [](const TensorSpec& tensor) { return size_of(tensor.dtype); });
  return tensors;
}

}  // namespace

std::string safetensors_preamble(std::span<const TensorSpec> tensors) {
  constexpr size_t kAlignment = 8;
  // Written by hand: a document object would take quadratic time to fill with 96,085 ordered keys.
  std::string header = R"({"__metadata__":{"format":"pt"})";
  int64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t end = begin + tensor.num_bytes();
    header += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          Json(tensor.name).dump(), to_string(tensor.dtype),
                          fmt::join(tensor.shape.dims(), ","), begin, end);
    begin = end;
  }
  header += '}';
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  std::string result(8, '\0');
  const uint64_t length = header.size();
  for (size_t i = 0; i < 8; ++i) result[i] = static_cast<char>((length >> (8 * i)) & 0xFF);
  return result + header;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorSpec> tensors)
    : tensors_(in_file_order(std::move(tensors))), file_(path) {
  for (const TensorSpec& tensor : tensors_) remaining_bytes_ += tensor.num_bytes();
  file_.write(safetensors_preamble(tensors_));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  remaining_bytes_ -= static_cast<int64_t>(bytes.size());
  DEEPINFER_CHECK(remaining_bytes_ >= 0, "more bytes than the declared tensors hold");
  file_.write(bytes);
}

void SafetensorsWriter::skip(int64_t bytes) {
  remaining_bytes_ -= bytes;
  DEEPINFER_CHECK(bytes >= 0 && remaining_bytes_ >= 0, "more bytes than the declared tensors hold");
  file_.skip(bytes);
}

void SafetensorsWriter::commit() {
  DEEPINFER_CHECK(remaining_bytes_ == 0, "{} declared bytes were not written", remaining_bytes_);
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path,
                       std::span<const std::pair<std::string, TensorView>> tensors) {
  std::map<std::string_view, const TensorView*> by_name;
  std::vector<TensorSpec> specs;
  for (const auto& [name, view] : tensors) {
    by_name.emplace(name, &view);
    specs.push_back({name, view.dtype(), view.shape()});
  }
  SafetensorsWriter writer(path, std::move(specs));
  for (const TensorSpec& spec : writer.tensors()) {
    const TensorView& view = *by_name.at(spec.name);
    writer.write(
        {static_cast<const std::byte*>(view.data()), static_cast<size_t>(view.num_bytes())});
  }
  writer.commit();
}

}  // namespace deepinfer::checkpoint
