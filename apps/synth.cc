#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/interruption.h"
#include "deepinfer/checkpoint.h"

namespace deepinfer::apps {

int synth(std::span<const std::string> arguments) {
  Flags flags("synth",
              "Writes a checkpoint with random weights in the released layout: the same bytes for "
              "the same flags.");
  SynthOptions options = {.show_progress = true};
  flags.text("--preset", "NAME", &options.preset, "nano, mini, flash-slice or flash");
  flags.require("--preset");
  flags.value(
      "--out", "DIR", [&options](const std::string& text) { options.directory = text; },
      "Folder to make; must be absent or empty");
  flags.require("--out");
  flags.integer("--layers", &options.layers, 1,
                "Backbone layers instead of the preset's; the schedule of KV sources follows");
  flags.integer("--experts", &options.experts, 1, "Routed experts per layer");
  flags.integer("--vocab-size", &options.vocab_size, 1, "Tokens of the vocabulary");
  flags.integer("--engram-vocab-size", &options.engram_vocab_size, 1,
                "About the rows per hash column of the Engram tables");
  flags.value(
      "--seed", "N",
      [&options](const std::string& text) { options.seed = parse_unsigned("--seed", text); },
      "Seed of the weights (default 0)");
  flags.toggle("--sparse", &options.sparse,
               "Files of full size without content: weights read as zeros and take no disk space");
  if (!flags.parse(arguments)) return 0;
  Interruption interruption;
  options.interrupted = [&interruption] { return interruption.requested(); };
  try {
    synthesize_checkpoint(options);
  } catch (const Error&) {
    if (interruption.requested()) return interruption.exit_code();
    throw;
  }
  return 0;
}

}  // namespace deepinfer::apps
