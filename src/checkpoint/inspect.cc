#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/memory_plan.h"
#include "checkpoint/presets.h"
#include "deepinfer/checkpoint.h"

namespace deepinfer {
namespace {

using checkpoint::Checkpoint;
using checkpoint::MemoryPlan;
using checkpoint::ModelConfig;

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

const char* to_string(CheckStatus status) {
  switch (status) {
    case CheckStatus::kPass:
      return "pass";
    case CheckStatus::kFail:
      return "FAIL";
    case CheckStatus::kNotApplicable:
      break;
  }
  return "n/a";
}

CheckLine to_line(const checkpoint::CheckResult& result) {
  const CheckStatus status = result.outcome == checkpoint::CheckOutcome::kPass ? CheckStatus::kPass
                             : result.outcome == checkpoint::CheckOutcome::kFail
                                 ? CheckStatus::kFail
                                 : CheckStatus::kNotApplicable;
  return {result.name, status, result.detail};
}

/// What an inspection has found out so far.
struct Findings {
  std::filesystem::path directory;
  std::optional<ModelConfig> config;
  std::optional<MemoryPlan> plan;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<CheckLine> checks;
  std::string error;

  bool ok() const {
    return error.empty() && std::ranges::none_of(checks, [](const CheckLine& line) {
             return line.status == CheckStatus::kFail;
           });
  }
};

/// The published first bytes of layers.0.attn.wkv (spec/checkpoint.md §2.2) tell the release from
/// other weights.
CheckLine check_release_bytes(const Checkpoint& checkpoint) {
  constexpr std::array<uint8_t, 8> kRow = {0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5};
  constexpr uint8_t kScale = 0x73;
  const QuantView wkv = checkpoint.weight("layers.0.attn.wkv");
  const bool equal = std::memcmp(wkv.weight.data(), kRow.data(), kRow.size()) == 0 &&
                     *wkv.scale.as<uint8_t>() == kScale;
  return {"the first bytes of layers.0.attn.wkv are those of the release",
          equal ? CheckStatus::kPass : CheckStatus::kNotApplicable,
          equal ? "" : "these are other weights"};
}

/// spec/checkpoint.md §7, as far as it needs the tensors. Opening has already refused what breaks
/// 2, 3 and 4.
void check_tensors(Findings& findings) {
  const Checkpoint& checkpoint = *findings.checkpoint;
  const MemoryPlan& plan = *findings.plan;
  std::vector<CheckLine>& checks = findings.checks;
  checks.push_back(
      {"every tensor is present once, with its dtype and shape, and every weight has its scale",
       CheckStatus::kPass, fmt::format("{} tensors", plan.total.count)});
  checks.push_back({"no scale that was read is NaN", CheckStatus::kPass, ""});
  const size_t ignored = checkpoint.ignored_tensors().size();
  constexpr const char* kTotal = "the tensors add up to the index's total_size";
  if (!checkpoint.declared_bytes() || ignored > 0) {
    checks.push_back({kTotal, CheckStatus::kNotApplicable,
                      ignored > 0 ? "there are unknown tensors" : "the index gives none"});
  } else {
    const bool equal = *checkpoint.declared_bytes() == plan.total.bytes;
    checks.push_back({kTotal, equal ? CheckStatus::kPass : CheckStatus::kFail,
                      equal ? ""
                            : fmt::format("it says {}; they have {}", *checkpoint.declared_bytes(),
                                          plan.total.bytes)});
  }
  constexpr const char* kRelease = "the release has 96,085 tensors of 510,286,023,000 bytes";
  if (*findings.config == checkpoint::release_config()) {
    const bool equal = plan.total.count == 96085 && plan.total.bytes == 510286023000;
    checks.push_back({kRelease, equal ? CheckStatus::kPass : CheckStatus::kFail, ""});
    checks.push_back(check_release_bytes(checkpoint));
  } else {
    checks.push_back({kRelease, CheckStatus::kNotApplicable, "this is another configuration"});
  }
  constexpr const char* kMap = "engram_token_map.json has an id in range for every token";
  const bool has_map = checkpoint.engram_token_map().has_value();
  checks.push_back({kMap, has_map ? CheckStatus::kPass : CheckStatus::kNotApplicable,
                    has_map ? "" : "the folder has none that is needed"});
}

void gather(Findings& findings, const InspectOptions& options) {
  constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
  const std::filesystem::path path = findings.directory / "config.json";
  const ModelConfig config =
      checkpoint::parse_config(read_file(path, kMaxConfigBytes), path.string());
  findings.config = config;
  for (const checkpoint::CheckResult& check : check_config(config))
    findings.checks.push_back(to_line(check));
  if (!findings.ok()) return;
  findings.plan = checkpoint::plan_memory(config);
  const auto& map = findings.directory / "engram_token_map.json";
  if (options.more_checks) {
    const CheckpointFacts facts = {
        .directory = findings.directory,
        .vocab_size = config.vocab_size,
        .engram_compressed_vocab_size =
            config.engram_layers.empty() ? 0 : config.engram_compressed_vocab_size,
        .has_engram_token_map = entry_exists(map)};
    for (CheckLine& line : options.more_checks(facts)) findings.checks.push_back(std::move(line));
  }
  findings.checkpoint = Checkpoint::open(
      findings.directory,
      {.show_progress = options.show_progress, .verify_everything = options.verify_everything});
  check_tensors(findings);
}

std::string config_text(const ModelConfig& c) {
  std::string text = fmt::format(
      "Configuration\n"
      "  layers {}, width {}, vocabulary {}, context {}\n"
      "  attention: {} heads of {} ({} rotate), window {}, query rank {}, output {} groups of rank "
      "{}\n"
      "  ratios {}\n"
      "  KV sources {}, index sources {}, {} index heads of {}, top {}\n",
      c.num_layers, c.hidden_size, c.vocab_size, c.max_positions, c.num_heads, c.head_dim,
      c.rope_head_dim, c.window, c.q_lora_rank, c.o_groups, c.o_lora_rank, c.compress_ratios,
      c.kv_source_layers, c.index_source_layers, c.index_num_heads, c.index_head_dim, c.index_topk);
  if (c.candidate_source_layer >= 0) {
    text += fmt::format("  candidates from layer {}: {} blocks of {}\n", c.candidate_source_layer,
                        c.candidate_topk_blocks, c.candidate_block_size);
  }
  text += fmt::format("  experts: {} of {} and a shared one, width {}; {} residual streams\n",
                      c.experts_per_token, c.num_experts, c.moe_intermediate_size, c.hc_mult);
  if (!c.engram_layers.empty()) {
    text += fmt::format("  Engram: layers {}, rows {}, {} heads of {}, n-grams to {}\n",
                        c.engram_layers, c.engram_num_embeddings, c.engram_num_heads,
                        c.engram_head_dim, c.engram_max_ngram);
  }
  if (c.num_draft_stages > 0) {
    text += fmt::format("  draft: {} stages, block {}, {} of {} experts, reads layers {}\n",
                        c.num_draft_stages, c.dspark_block_size, c.dspark_experts_per_token,
                        c.dspark_num_experts, c.dspark_target_layers);
  }
  text += c.vision
              ? fmt::format("  vision: {} layers, width {}, at most {} tokens per image\n",
                            c.vision->num_layers, c.vision->hidden_size, c.vision->max_image_tokens)
              : "  vision: none\n";
  return text;
}

std::string plan_text(const MemoryPlan& plan) {
  std::string text = "Tensors\n";
  const auto row = [&text](std::string_view name, const checkpoint::TensorTotal& total) {
    text += fmt::format("  {:<20}{:>8}{:>20} B{:>14}\n", name, total.count, total.bytes,
                        human_bytes(total.bytes));
  };
  for (size_t kind = 0; kind < plan.kinds.size(); ++kind) {
    if (plan.kinds[kind].count > 0)
      row(to_string(static_cast<checkpoint::TensorKind>(kind)), plan.kinds[kind]);
  }
  row("total", plan.total);
  text += fmt::format(
      "Memory\n"
      "  resident weights    {}\n"
      "  mapped tables       {}\n"
      "  KV per token        {} B\n"
      "  rings per request   {} ({} rows of {} B per layer)\n"
      "  ring snapshot       2 x {}\n",
      human_bytes(plan.resident_bytes), human_bytes(plan.mapped_bytes), plan.kv_bytes_per_token,
      human_bytes(plan.ring_bytes), plan.ring_rows, plan.ring_row_bytes,
      human_bytes(plan.snapshot_unit_bytes));
  if (plan.draft_ring_bytes > 0) {
    text +=
        fmt::format("  draft rings         {} per request\n", human_bytes(plan.draft_ring_bytes));
  }
  return text;
}

std::string to_text(const Findings& findings) {
  std::string text = fmt::format("{}\n", findings.directory.string());
  if (findings.config) text += config_text(*findings.config);
  if (findings.plan) text += plan_text(*findings.plan);
  if (!findings.checks.empty()) text += "Checks\n";
  for (const CheckLine& line : findings.checks) {
    text += fmt::format("  {:<5}{}{}{}\n", to_string(line.status), line.name,
                        line.detail.empty() ? "" : ": ", line.detail);
  }
  if (findings.checkpoint) {
    const std::vector<std::string>& ignored = findings.checkpoint->ignored_tensors();
    if (!ignored.empty()) {
      const size_t shown = std::min<size_t>(ignored.size(), 5);
      text += fmt::format(
          "Unknown tensors ignored: {} ({}{})\n", ignored.size(),
          fmt::join(ignored.begin(), ignored.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          shown < ignored.size() ? ", …" : "");
    }
    text += fmt::format("Fingerprint {:016x}\n", findings.checkpoint->fingerprint());
  }
  if (!findings.error.empty()) text += fmt::format("Error: {}\n", findings.error);
  return text + (findings.ok() ? "OK\n" : "NOT OK\n");
}

Json plan_json(const MemoryPlan& plan) {
  Json kinds = Json::array();
  for (size_t kind = 0; kind < plan.kinds.size(); ++kind) {
    kinds.push_back({{"kind", to_string(static_cast<checkpoint::TensorKind>(kind))},
                     {"tensors", plan.kinds[kind].count},
                     {"bytes", plan.kinds[kind].bytes}});
  }
  return {{"tensors", {{"count", plan.total.count}, {"bytes", plan.total.bytes}, {"kinds", kinds}}},
          {"memory",
           {{"resident_bytes", plan.resident_bytes},
            {"mapped_bytes", plan.mapped_bytes},
            {"kv_bytes_per_token", plan.kv_bytes_per_token},
            {"ring_rows", plan.ring_rows},
            {"ring_row_bytes", plan.ring_row_bytes},
            {"ring_bytes_per_request", plan.ring_bytes},
            {"draft_ring_bytes_per_request", plan.draft_ring_bytes},
            {"snapshot_unit_bytes", plan.snapshot_unit_bytes}}}};
}

std::string to_json(const Findings& findings) {
  Json root = {{"directory", findings.directory.string()}, {"ok", findings.ok()}};
  if (!findings.error.empty()) root["error"] = findings.error;
  if (findings.config) root["config"] = parse_json(checkpoint::to_json(*findings.config), "config");
  if (findings.plan) root.update(plan_json(*findings.plan));
  Json checks = Json::array();
  for (const CheckLine& line : findings.checks) {
    const char* const result = line.status == CheckStatus::kFail ? "fail" : to_string(line.status);
    checks.push_back({{"name", line.name}, {"result", result}, {"detail", line.detail}});
  }
  root["checks"] = std::move(checks);
  if (findings.checkpoint) {
    root["ignored_tensors"] = findings.checkpoint->ignored_tensors();
    root["fingerprint"] = fmt::format("{:016x}", findings.checkpoint->fingerprint());
  }
  // Paths and names from outside need not be valid UTF-8.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string error_sentence(const Findings& findings) {
  if (!findings.error.empty()) return findings.error;
  const auto failed = std::ranges::find(findings.checks, CheckStatus::kFail, &CheckLine::status);
  if (failed == findings.checks.end()) return "";
  return fmt::format("{}: check failed: {}{}{}", findings.directory.string(), failed->name,
                     failed->detail.empty() ? "" : ": ", failed->detail);
}

}  // namespace

InspectReport inspect_checkpoint(const std::filesystem::path& directory,
                                 const InspectOptions& options) {
  Findings findings;
  findings.directory = directory;
  try {
    gather(findings, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    findings.error = error.what();
  } catch (const std::filesystem::filesystem_error& error) {
    findings.error = fmt::format("{}: {}", directory.string(), error.code().message());
  }
  return {.text = to_text(findings),
          .json = to_json(findings),
          .ok = findings.ok(),
          .error = error_sentence(findings)};
}

}  // namespace deepinfer
