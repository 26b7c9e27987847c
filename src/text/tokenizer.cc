#include "deepinfer/tokenizer.h"

#include <bit>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "text/merge_table.h"
#include "text/piece_cache.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_data.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;
constexpr int64_t kMaxCachePieces = int64_t{1} << 24;
// Symbols of a piece are counted in 32 bits.
constexpr size_t kMaxTextBytes = (size_t{1} << 31) - 1;

/// What one thread needs while it encodes.
struct Workspace {
  explicit Workspace(size_t cache_slots) : cache(cache_slots) {}
  text::PieceCache cache;
  text::MergeScratch scratch;
};

}  // namespace

void TokenizerOptions::validate() const {
  if (cache_pieces < 0 || cache_pieces > kMaxCachePieces) {
    fail(ErrorCode::kInvalidArgument, "TokenizerOptions::cache_pieces is {}, expected 0 … {}",
         cache_pieces, kMaxCachePieces);
  }
}

struct Tokenizer::Impl {
  Impl(text::TokenizerData parsed, size_t slots) : data(std::move(parsed)), cache_slots(slots) {}

  void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids);
  void encode_plain(const char* begin, const char* end, Workspace& workspace,
                    std::vector<int32_t>& ids) const;
  std::unique_ptr<Workspace> borrow();
  void give_back(std::unique_ptr<Workspace> workspace);

  const text::TokenizerData data;
  const text::PreTokenizer pre_tokenizer;
  const size_t cache_slots;
  std::mutex mutex;  // guards idle
  std::vector<std::unique_ptr<Workspace>> idle;
};

std::unique_ptr<Workspace> Tokenizer::Impl::borrow() {
  {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(idle.back());
      idle.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>(cache_slots);
}

void Tokenizer::Impl::give_back(std::unique_ptr<Workspace> workspace) {
  // A huge piece must not keep its buffers for ever.
  constexpr size_t kMaxKeptSymbols = 1 << 20;
  if (workspace->scratch.symbols.capacity() > kMaxKeptSymbols) workspace->scratch = {};
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(workspace));
}

void Tokenizer::Impl::encode(std::string_view text, SpecialTokens special,
                             std::vector<int32_t>& ids) {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorCode::kInvalidArgument,
         "a text of {} bytes is too long to encode, at most {} are allowed", text.size(),
         kMaxTextBytes);
  }
  std::unique_ptr<Workspace> workspace = borrow();
  const char* at = text.data();
  const char* end = at + text.size();
  while (special == SpecialTokens::kParse && at < end) {
    const text::AddedTokens::Match match = data.added.next(at, end);
    encode_plain(at, match.begin, *workspace, ids);
    if (match.begin != end) ids.push_back(match.id);
    at = match.end;
  }
  encode_plain(at, end, *workspace, ids);
  give_back(std::move(workspace));
}

void Tokenizer::Impl::encode_plain(const char* begin, const char* end, Workspace& workspace,
                                   std::vector<int32_t>& ids) const {
  while (begin < end) {
    const char* next = pre_tokenizer.next(begin, end);
    const std::string_view piece(begin, static_cast<size_t>(next - begin));
    begin = next;
    if (!workspace.cache.accepts(piece)) {
      data.merges.encode(piece, workspace.scratch, ids);
      continue;
    }
    const text::PieceCache::Key key = workspace.cache.key(piece);
    const std::span<const int32_t> known = workspace.cache.find(key);
    if (!known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      continue;
    }
    const size_t first = ids.size();
    data.merges.encode(piece, workspace.scratch, ids);
    workspace.cache.store(key, std::span(ids).subspan(first));
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& directory, const TokenizerOptions& options) {
  const std::filesystem::path path = directory / "tokenizer.json";
  return from_json(read_file(path, kMaxFileBytes), path.string(), options);
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view source,
                               const TokenizerOptions& options) {
  options.validate();
  const auto pieces = static_cast<size_t>(options.cache_pieces);
  return Tokenizer(std::make_unique<Impl>(text::parse_tokenizer_json(json, source),
                                          pieces == 0 ? 0 : std::bit_ceil(pieces)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(impl_->data.tokens.size());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<int32_t> ids;
  encode(text, special, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, SpecialTokens special,
                       std::vector<int32_t>& ids) const {
  impl_->encode(text, special, ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      fail(ErrorCode::kInvalidArgument, "token {} at index {} is outside the vocabulary 0 … {}",
           ids[i], i, vocab_size() - 1);
    }
    const text::Token& token = impl_->data.tokens[static_cast<size_t>(ids[i])];
    if (!skip_special || !token.special) bytes += token.bytes;
  }
  return bytes;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->data.tokens[static_cast<size_t>(id)].bytes;
}

std::string_view Tokenizer::token_piece(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->data.tokens[static_cast<size_t>(id)].piece;
}

std::optional<int32_t> Tokenizer::added_token(std::string_view text) const {
  return impl_->data.added.find(text);
}

bool Tokenizer::is_added(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->data.tokens[static_cast<size_t>(id)].added;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->data.tokens[static_cast<size_t>(id)].special;
}

}  // namespace deepinfer
