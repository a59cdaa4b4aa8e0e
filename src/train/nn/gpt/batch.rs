//! Batches of the model.

/// Sequences of equal length: input tokens and the target after each token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// Number of tokens of each sequence.
    pub length: usize,
    /// Input tokens, one sequence after the other.
    pub inputs: Vec<u32>,
    /// Target of every input token: its successor. Empty: the model computes scores only, no loss.
    pub targets: Vec<u32>,
}
