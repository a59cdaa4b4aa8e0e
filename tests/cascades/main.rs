//! Goal: of a failure that spreads from one rank to all, the rank where it began is named.
//!
//! | what | where |
//! |---|---|
//! | cascades as recorded from real components, replayed through the decision | `table`, `words` |
//! | real processes that behave as a cascade does, without torch | `plain` |
//! | real torch with gloo, where it is installed (`scripts/integrations --install`) | `torch` |
//!
//! The same over ssh and for nodes that dial in is in `tests/ssh/cascades.rs` and
//! `tests/pods/cascades.rs`.

#![cfg(all(feature = "cli", feature = "train"))]

#[expect(dead_code, reason = "each test program uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod plain;
mod table;
mod torch;
mod words;
