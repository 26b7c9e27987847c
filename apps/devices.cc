#include "deepinfer/devices.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/output.h"

namespace deepinfer::apps {
namespace {

std::string to_json(const DeviceReport& report) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : report.devices) {
    devices.push_back({{"index", device.index},
                       {"name", device.name},
                       {"compute_capability", device.compute},
                       {"multiprocessors", device.num_multiprocessors},
                       {"memory_bytes", device.memory_bytes},
                       {"free_bytes", device.free_bytes},
                       {"family", device.family},
                       {"usable", device.problem.empty()},
                       {"problem", device.problem}});
  }
  const nlohmann::ordered_json json = {{"cuda_runtime", report.runtime},
                                       {"cuda_driver", report.driver},
                                       {"problem", report.problem},
                                       {"devices", std::move(devices)}};
  return json.dump(2) + "\n";
}

std::string to_text(const DeviceReport& report) {
  std::string text =
      fmt::format("CUDA runtime {}, driver {}\n", report.runtime.empty() ? "none" : report.runtime,
                  report.driver.empty() ? "none" : report.driver);
  if (!report.problem.empty()) text += fmt::format("no device: {}\n", report.problem);
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  for (const DeviceInfo& device : report.devices) {
    text += fmt::format(
        "{}: {}, compute capability {}, {} multiprocessors, {:.1f} of {:.1f} GiB free: {}\n",
        device.index, device.name, device.compute, device.num_multiprocessors,
        static_cast<double>(device.free_bytes) / kGiB,
        static_cast<double>(device.memory_bytes) / kGiB,
        device.problem.empty() ? device.family : "cannot be used, " + device.problem);
  }
  return text;
}

}  // namespace

int devices(std::span<const std::string> arguments) {
  Flags flags(
      "devices",
      "Lists the GPUs of this machine and whether this program can use them (--backend cuda, "
      "--device N).");
  bool json = false;
  flags.toggle("--json", &json, "Print one JSON object");
  if (!flags.parse(arguments)) return 0;
  const DeviceReport report = list_devices();
  Output().write(json ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace deepinfer::apps
