//! Goal: if a failure spreads from one rank to all, the screen names the rank where it began.
//!
//! | what | where |
//! |---|---|
//! | cascades as recorded from real components, replayed through the selection of the cause | `table`, `words` |
//! | real processes that behave as a cascade does, without torch | `plain` |
//! | real torch with gloo, where it is installed (`scripts/integrations --install`) | `torch` |
//!
//! The same over ssh and for nodes that connect by themselves is in `tests/ssh/cascades.rs` and
//! `tests/pods/cascades.rs`.

mod plain;
mod table;
mod torch;
mod words;
