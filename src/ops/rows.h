#pragma once

#include "ops/plan_row.h"
#include "tensor/tensor.h"

namespace deepinfer::ops {

/// Per-slot state of the requests, owned by the engine, on the device. S = slots, N = Engram's
/// n-gram size, P = most pages of a slot, G = most drafts.
struct SlotState {
  TensorView committed;   // [S] i64: tokens whose keys and values are in the caches
  TensorView last_token;  // [S] i32: the token at position `committed`, not yet processed
  TensorView drafts;      // [S, G] i32: drafted tokens after last_token; may be empty
  TensorView history;  // [S, max(N - 1, 1)] i32: tokens at committed-1, committed-2, …; -1 before
                       // the start
  TensorView page_table;  // [S, P] i32: page of tokens [p·page_tokens, (p+1)·page_tokens); -1: none
  int64_t page_tokens = 0;  // tokens per page, even
};

/// What resolve_rows makes of a plan: the address of every row. B = rows of the step. Rows are
/// sorted by depth, deepest first, so a layer that not all rows need runs the first rows only
/// (design.md, "Depth per row"). A slot's rows have consecutive positions; `span_rows` lists them
/// in that order, because neighbours in the sequence need not be neighbours in the batch.
struct RowBatch {
  TensorView token;       // [B] i32
  TensorView position;    // [B] i64: absolute position in the sequence
  TensorView slot;        // [B] i32
  TensorView role;        // [B] u8: RowRole
  TensorView span_begin;  // [B] i32: where the row's slot starts in span_rows
  TensorView span_size;   // [B] i32: number of the slot's rows in this step
  TensorView span_first;  // [B] i64: position of the slot's first row in this step
  TensorView span_rows;   // [B] i32: batch rows, slot after slot, by ascending position
  TensorView
      context;  // [B, max(N, 1)] i32: tokens at t, t-1, …; -1 before the start of the sequence
};

/// The compressed cache of one KV source: FP4 entries and FP4 index keys in pages (spec/model.md
/// §4–§6). Entry e of a slot, covering tokens [e·ratio, (e+1)·ratio), is row e mod E of page
/// page_table[slot, e / E], E = page_tokens / ratio.
struct CompressedPages {
  TensorView entry_codes;   // [pages, E, D/2] e2m1x2
  TensorView entry_scales;  // [pages, E, D/16] e4m3
  TensorView key_codes;     // [pages, E, Di/2] e2m1x2
  TensorView key_scales;    // [pages, E, Di/32] e8m0
  int32_t ratio = 1;        // tokens per entry
};

/// One layer's window rings: row t mod R of a slot holds position t, FP8 (spec/model.md §6). A row
/// whose tag is not the position looked for is not there. The slots are a stride apart, because the
/// rings of all layers of a slot lie together.
struct WindowRings {
  TensorView codes;   // [S, R, D] e4m3
  TensorView scales;  // [S, R, D/32] e8m0
  TensorView tags;    // [S, R] i64: absolute position, -1 = empty
};

/// RoPE of a layer (spec/model.md §3).
struct Rope {
  TensorView inv_freq;  // [R/2] f32; R = the trailing channels of a head that rotate
};

}  // namespace deepinfer::ops
