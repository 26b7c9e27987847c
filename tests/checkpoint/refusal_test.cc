// Every way in which a checkpoint on disk can be wrong, as changes to a good one.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_writer.h"
#include "deepinfer/checkpoint.h"
#include "temporary_directory.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
// The synthetic nano model: embedding, 10 layers, head, 2 draft stages, 2 Engram layers.
constexpr const char* kLayer0 = "model-00002-of-00016.safetensors";
constexpr const char* kEngram1 = "model-00015-of-00016.safetensors";

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A folder of links to a good checkpoint, as in a Hugging Face cache. edit() turns one file into a
/// private copy.
class Folder {
 public:
  explicit Folder(const fs::path& good) {
    for (const auto& entry : fs::directory_iterator(good)) {
      fs::create_symlink(entry.path(), path() / entry.path().filename());
    }
  }
  fs::path path() const { return directory_.path(); }

  fs::path edit(const std::string& name) {
    const fs::path file = path() / name;
    if (fs::is_symlink(file)) {
      const fs::path target = fs::read_symlink(file);
      fs::remove(file);
      fs::copy_file(target, file);
    }
    return file;
  }
  /// Replaces the first occurrence of `from` in a file's text. Headers need equal lengths.
  void replace(const std::string& name, std::string_view from, std::string_view to) {
    const fs::path file = edit(name);
    std::string text = read_file(file, int64_t{1} << 30);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text(file, text.replace(at, from.size(), to));
  }
  void set_byte(const std::string& name, const std::string& tensor, int64_t offset, char value) {
    const fs::path file = edit(name);
    int64_t begin = -1;
    {
      const SafetensorsFile shard = SafetensorsFile::open(file);
      for (const HeaderEntry& entry : shard.entries()) {
        if (entry.name == tensor) begin = entry.begin;
      }
    }
    ASSERT_GE(begin, 0) << tensor;
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(begin + offset);
    stream.put(value);
  }
  /// Adds a shard that holds one bf16 vector of that name.
  void add_shard(const std::string& tensor, int64_t size) {
    const Tensor values(DType::kBF16, {size});
    const std::vector<std::pair<std::string, TensorView>> tensors = {{tensor, values}};
    write_safetensors(path() / "extra.safetensors", tensors);
  }
  void remove(const std::string& name) { fs::remove(path() / name); }

  std::string error() const {
    try {
      Checkpoint::open(path());
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
      return error.what();
    }
    return "accepted";
  }

 private:
  TemporaryDirectory directory_;
};

/// The good checkpoint, made once.
const fs::path& good_checkpoint() {
  static const TemporaryDirectory parent;
  static const fs::path path = [] {
    const fs::path made = parent / "nano";
    synthesize_checkpoint({.preset = "nano", .directory = made});
    return made;
  }();
  return path;
}

struct Damage {
  const char* name;
  std::function<void(Folder&)> apply;
  std::vector<const char*> message;  // parts of the error: file, tensor, reason
};

class CheckpointRefusal : public testing::TestWithParam<Damage> {};

TEST_P(CheckpointRefusal, NamesFileTensorAndReason) {
  Folder folder(good_checkpoint());
  GetParam().apply(folder);
  const std::string error = folder.error();
  for (const char* const part : GetParam().message) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
  // Inspection reports the same instead of throwing it.
  const InspectReport report = inspect_checkpoint(folder.path());
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.text.find("NOT OK"), std::string::npos);
}

void resize(Folder& folder, const char* name, int64_t change) {
  const fs::path file = folder.edit(name);
  fs::resize_file(file, static_cast<uintmax_t>(static_cast<int64_t>(fs::file_size(file)) + change));
}

const std::string kIndexLine = std::string("\"layers.0.attn.wq_a.scale\": \"") + kLayer0 + "\"";

std::vector<Damage> damages() {
  return {
      {"TruncatedShard",
       [](Folder& f) { resize(f, kLayer0, -1); },
       {kLayer0, "pass the end of the file"}},
      {"ShardOfSevenBytes",
       [](Folder& f) { write_text(f.edit(kLayer0), "1234567"); },
       {kLayer0, "too few"}},
      {"EmptyShard", [](Folder& f) { write_text(f.edit(kLayer0), ""); }, {kLayer0, "too few"}},
      {"TrailingBytes", [](Folder& f) { resize(f, kLayer0, 5); }, {kLayer0, "5 bytes at the end"}},
      {"LyingHeaderLength",
       [](Folder& f) {
         std::fstream stream(f.edit(kLayer0), std::ios::in | std::ios::out | std::ios::binary);
         stream.write("\xFD\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
       },
       {kLayer0, "claims 18446744073709551613"}},
      {"LyingOffsets",
       [](Folder& f) { f.replace(kLayer0, "\"data_offsets\":[0,", "\"data_offsets\":[8,"); },
       {kLayer0, "tensor", "span"}},
      {"MissingTensor",
       [](Folder& f) {
         f.remove(kIndex);
         f.replace(kLayer0, "layers.0.attn.wq_a.scale", "layers.0.attn.wq_a.other");
       },
       {"layers.0.attn.wq_a.scale", "missing from all 16 files"}},
      {"MissingShardWithoutIndex",
       [](Folder& f) {
         f.remove(kIndex);
         f.remove(kLayer0);
       },
       {"layers.0.", "missing"}},
      {"TensorNotWhereTheIndexSays",
       [](Folder& f) {
         f.replace(kIndex, kIndexLine,
                   "\"layers.0.attn.wq_a.scale\": \"" + std::string(kEngram1) + "\"");
       },
       {kEngram1, "layers.0.attn.wq_a.scale", "the index names it"}},
      {"DuplicateAcrossShards",
       [](Folder& f) {
         f.remove(kIndex);
         fs::copy_file(f.path() / kLayer0, f.path() / "again.safetensors");
       },
       {"there is another one", kLayer0}},
      {"DuplicateAfterFolding",
       [](Folder& f) {
         f.remove(kIndex);
         f.add_shard("model.layers.0.attn_norm.weight", 128);
       },
       {"there is another one", "model.layers.0.attn_norm.weight"}},
      {"WrongDtype",
       [](Folder& f) {
         f.replace(kLayer0, "\"layers.0.attn.attn_sink\":{\"dtype\":\"F32\"",
                   "\"layers.0.attn.attn_sink\":{\"dtype\":\"I32\"");
       },
       {kLayer0, "layers.0.attn.attn_sink", "is I32 [2]; the configuration asks for F32 [2]"}},
      {"UnknownDtype",
       [](Folder& f) {
         f.replace(kLayer0, "\"layers.0.attn.attn_sink\":{\"dtype\":\"F32\"",
                   "\"layers.0.attn.attn_sink\":{\"dtype\":\"F7\" ");
       },
       {kLayer0, "layers.0.attn.attn_sink", "\"F7\" is not"}},
      {"UnusableDtype",
       [](Folder& f) {
         f.replace(kLayer0, "\"layers.0.attn.attn_sink\":{\"dtype\":\"F32\"",
                   "\"layers.0.attn.attn_sink\":{\"dtype\":\"U32\"");
       },
       {kLayer0, "layers.0.attn.attn_sink", "is U32 [2]; the configuration asks for F32 [2]"}},
      {"WrongShape",
       [](Folder& f) { f.replace("config.json", "\"q_lora_rank\": 64", "\"q_lora_rank\": 96"); },
       {"layers.0.attn.wq_a.weight",
        "is F8_E4M3 [64, 128]; the configuration asks for F8_E4M3 [96, 128]"}},
      {"NanScale",
       [](Folder& f) { f.set_byte(kLayer0, "layers.0.ffn.experts.3.w2.scale", 17, '\xFF'); },
       {kLayer0, "layers.0.ffn.experts.3.w2.scale", "NaN scale at byte 17"}},
      {"NanEngramScale",
       [](Folder& f) { f.set_byte(kEngram1, "layers.1.engram.embed.scale", 2723, '\xFF'); },
       {kEngram1, "layers.1.engram.embed.scale", "NaN scale at byte 2723"}},
      {"NanCode",
       [](Folder& f) { f.set_byte(kLayer0, "layers.0.attn.wkv.weight", 99, '\x7F'); },
       {kLayer0, "layers.0.attn.wkv.weight", "NaN value at byte 99"}},
      {"IndexNamesAbsentFile",
       [](Folder& f) {
         f.replace(kIndex, kIndexLine, "\"layers.0.attn.wq_a.scale\": \"model-9-of-3\"");
       },
       {kIndex, "model-9-of-3", "does not exist"}},
      {"IndexLeavesDirectory",
       [](Folder& f) { f.replace(kIndex, kIndexLine, "\"layers.0.attn.wq_a.scale\": \"../x\""); },
       {kIndex, "layers.0.attn.wq_a.scale", "\"../x\", which is not a file of this directory"}},
      {"IndexLeavesDirectoryInTheMiddle",
       [](Folder& f) {
         f.replace(kIndex, kIndexLine, "\"layers.0.attn.wq_a.scale\": \"a/../../x\"");
       },
       {kIndex, "not a file of this directory"}},
      {"IndexNamesAbsolutePath",
       [](Folder& f) {
         f.replace(kIndex, kIndexLine, "\"layers.0.attn.wq_a.scale\": \"/etc/passwd\"");
       },
       {kIndex, "not a file of this directory"}},
      {"IndexNamesNumber",
       [](Folder& f) { f.replace(kIndex, kIndexLine, "\"layers.0.attn.wq_a.scale\": 7"); },
       {kIndex, "is said to be in 7"}},
      {"IndexNamesDirectory",
       [](Folder& f) {
         f.replace(kIndex, kIndexLine, "\"layers.0.attn.wq_a.scale\": \"sub\"");
         fs::create_directory(f.path() / "sub");
       },
       {"sub", "not a regular file"}},
      {"DeepIndex",
       [](Folder& f) { write_text(f.edit(kIndex), std::string(100'000, '[')); },
       {kIndex, "nested deeper"}},
      {"IndexWithoutMap",
       [](Folder& f) { write_text(f.edit(kIndex), "{}"); },
       {kIndex, "weight_map"}},
      {"BrokenIndex",
       [](Folder& f) { write_text(f.edit(kIndex), "{\"weight_map\":"); },
       {kIndex, "not valid JSON"}},
      {"DanglingIndexLink",
       [](Folder& f) {
         f.remove(kIndex);
         fs::create_symlink("nowhere", f.path() / kIndex);
       },
       {kIndex, "cannot open"}},
      {"NoShards",
       [](Folder& f) {
         for (const auto& e : fs::directory_iterator(f.path())) {
           if (e.path().filename() != "config.json") fs::remove(e.path());
         }
       },
       {"no *.safetensors"}},
      {"NoConfig", [](Folder& f) { f.remove("config.json"); }, {"config.json", "cannot open"}},
      {"DeepConfig",
       [](Folder& f) { write_text(f.edit("config.json"), std::string(100'000, '[')); },
       {"config.json", "nested deeper"}},
      {"InconsistentConfig",
       [](Folder& f) { f.replace("config.json", "\"o_groups\": 2", "\"o_groups\": 3"); },
       {"config.json", "o_groups divides"}},
      {"ShortTokenMap",
       [](Folder& f) { write_text(f.edit("engram_token_map.json"), "[1,2,3]"); },
       {"engram_token_map.json", "holds 3 entries", "512"}},
      {"TokenMapOutOfRange",
       [](Folder& f) { f.replace("engram_token_map.json", ",399,", ",400,"); },
       {"engram_token_map.json", "entry 399 is 400", "0 to 399"}},
      {"NegativeInTokenMap",
       [](Folder& f) { f.replace("engram_token_map.json", ",399,", ",-39,"); },
       {"engram_token_map.json", "is -39"}},
      {"NestedTokenMap",
       [](Folder& f) { write_text(f.edit("engram_token_map.json"), "[[1]]"); },
       {"engram_token_map.json", "nested deeper"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Damages, CheckpointRefusal, testing::ValuesIn(damages()),
                         [](const auto& info) { return info.param.name; });

TEST(Checkpoint, FollowsLinksInsideTheFolder) {
  EXPECT_EQ(Folder(good_checkpoint()).error(), "accepted");
}

TEST(Checkpoint, NeedsNoIndex) {
  Folder folder(good_checkpoint());
  folder.remove(kIndex);
  EXPECT_EQ(folder.error(), "accepted");
}

TEST(Checkpoint, IgnoresUnknownTensors) {
  Folder folder(good_checkpoint());
  folder.remove(kIndex);
  folder.add_shard("mtp.0.embed.weight", 4);
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint->ignored_tensors(), std::vector<std::string>{"mtp.0.embed.weight"});
  EXPECT_FALSE(checkpoint->contains("mtp.0.embed.weight"));
}

TEST(Checkpoint, AcceptsOlderSpellingsInOneFile) {
  const auto original = Checkpoint::open(good_checkpoint());
  const auto older = [](std::string name) {
    const auto swap = [&name](std::string_view from, std::string_view to) {
      const size_t at = name.find(from);
      if (at != std::string::npos) name.replace(at, from.size(), to);
    };
    swap(".attn.", ".self_attn.");
    swap(".ffn.", ".mlp.");
    if (name.ends_with(".scale")) swap(".scale", ".weight_scale_inv");
    if (name.ends_with("gate.bias")) swap("gate.bias", "gate.e_score_correction_bias");
    if (name.starts_with("head.")) return "lm_" + name;
    if (name.starts_with("embed.")) return "model.embed_tokens." + name.substr(6);
    return "model." + name;
  };
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const SafetensorsFile& shard : original->shards()) {
    for (const HeaderEntry& entry : shard.entries())
      tensors.emplace_back(older(entry.name), shard.view(entry));
  }
  const TemporaryDirectory directory;
  write_safetensors(directory / "model.safetensors", tensors);
  fs::copy_file(good_checkpoint() / "config.json", directory / "config.json");

  const auto renamed = Checkpoint::open(directory.path());
  EXPECT_TRUE(renamed->ignored_tensors().empty());
  const QuantView a = original->weight("layers.3.ffn.experts.1.w2");
  const QuantView b = renamed->weight("layers.3.ffn.experts.1.w2");
  EXPECT_EQ(
      std::memcmp(a.weight.data(), b.weight.data(), static_cast<size_t>(a.weight.num_bytes())), 0);
  EXPECT_EQ(a.scale.as<uint8_t>()[5], b.scale.as<uint8_t>()[5]);
}

TEST(Checkpoint, FingerprintFollowsEveryByte) {
  Folder folder(good_checkpoint());
  const uint64_t before = Checkpoint::open(folder.path())->fingerprint();
  folder.set_byte(kLayer0, "layers.0.attn.wkv.weight", 1000, '\x11');
  EXPECT_NE(Checkpoint::open(folder.path())->fingerprint(), before);
}

TEST(Checkpoint, SurvivesRandomMutations) {
  const std::vector<std::string> files = {kIndex, kLayer0, kEngram1, "config.json",
                                          "engram_token_map.json"};
  int refused = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Folder folder(good_checkpoint());
    const fs::path file = folder.edit(files[seed % files.size()]);
    std::string bytes = read_file(file, int64_t{1} << 30);
    const size_t reach = std::min<size_t>(bytes.size(), 20'000);  // headers and JSON, not payload
    for (uint32_t i = 0; i <= random() % 4; ++i)
      bytes[random() % reach] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    write_text(file, bytes);
    refused += folder.error() == "accepted" ? 0 : 1;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace deepinfer::checkpoint
