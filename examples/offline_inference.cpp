// Continues a few prompts with a model and prints what it wrote:
//
//     offline_inference models/tiny-v41
//
// All requests are queued at once, so that the engine runs them together. Their texts do not depend
// on that: alone, each would be the same.

#include <deepinfer/engine.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> prompts = {
      "The history of the city",
      "Once upon a time, there was a little",
      "To install the program,",
  };
  try {
    deepinfer::EngineOptions options;
    options.model = argv[1];
    const std::unique_ptr<deepinfer::Engine> engine = deepinfer::Engine::create(options);
    const deepinfer::Tokenizer* tokenizer = engine->tokenizer();
    if (tokenizer == nullptr) {
      std::fprintf(stderr, "%s has no tokenizer.json\n", argv[1]);
      return 2;
    }

    std::vector<deepinfer::OutputStream> streams;
    for (const std::string& prompt : prompts) {
      deepinfer::Request request;
      request.prompt = tokenizer->encode(prompt);
      request.sampling.max_tokens = 24;
      request.sampling.temperature = 0;  // always the most likely token
      streams.push_back(engine->submit(std::move(request)));
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const deepinfer::Completion completion = deepinfer::collect(streams[i]);
      std::printf("%s|%s\n(%zu tokens, %s)\n\n", prompts[i].c_str(), completion.text.c_str(),
                  completion.tokens.size(), to_string(completion.finish_reason));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
