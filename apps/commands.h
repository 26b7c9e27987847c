#pragma once

#include <span>
#include <string>

namespace deepinfer::apps {

// The sub-commands. Each takes the arguments behind its name, prints its results on standard
// output, and returns the exit code; errors are thrown, as deepinfer::Error where the input is at
// fault.

int generate(std::span<const std::string> arguments);
int score(std::span<const std::string> arguments);
int devices(std::span<const std::string> arguments);
int inspect(std::span<const std::string> arguments);
int synth(std::span<const std::string> arguments);
int tokenize(std::span<const std::string> arguments);
int bench(std::span<const std::string> arguments);
int parse(std::span<const std::string> arguments);
#ifdef DEEPINFER_SERVER
int serve(std::span<const std::string> arguments);
int bench_serve(std::span<const std::string> arguments);
int bench_sweep(std::span<const std::string> arguments);
#endif

}  // namespace deepinfer::apps
