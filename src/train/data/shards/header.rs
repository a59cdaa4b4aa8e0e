//! Header of a shard. Pure.

use std::fmt;

/// Size of the header in bytes: 256 numbers.
pub(super) const HEADER_BYTES: usize = 1024;
/// Largest number of tokens of a shard: the header has an `i32`.
pub(super) const TOKENS_MAX: usize = i32::MAX as usize;

/// Type of the tokens of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Two bytes: vocabularies of at most 65,536 tokens.
    U16,
    /// Four bytes.
    U32,
}

impl TokenType {
    /// Returns the smaller type that has all tokens of a vocabulary of this size.
    pub fn of_vocabulary(size: usize) -> Self {
        if size <= 1 << 16 { Self::U16 } else { Self::U32 }
    }

    /// Returns the number of bytes of a token.
    pub fn bytes(self) -> usize {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// Magic number and version.
    fn signature(self) -> [i32; 2] {
        match self {
            Self::U16 => [20_240_520, 1],
            Self::U32 => [20_240_801, 7],
        }
    }
}

impl fmt::Display for TokenType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::U16 => "u16",
            Self::U32 => "u32",
        })
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardHeader {
    pub(super) token_type: TokenType,
    /// At most [`TOKENS_MAX`].
    pub(super) tokens: usize,
}

impl ShardHeader {
    /// Number of bytes of the whole file.
    pub(super) fn file_bytes(self) -> u64 {
        HEADER_BYTES as u64 + self.tokens as u64 * self.token_type.bytes() as u64
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let [magic, version] = self.token_type.signature();
        for (number, place) in [magic, version, self.tokens as i32].iter().zip(bytes.chunks_mut(4))
        {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Whether a file that begins with these bytes is meant to be a shard.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        let types = [TokenType::U16, TokenType::U32];
        types.iter().any(|one| bytes.starts_with(&one.signature()[0].to_le_bytes()))
    }

    /// Parses the first bytes of a file; the error is the reason why they are no header.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            let found = bytes.len();
            return Err(format!("it has {found} bytes, and the header alone has {HEADER_BYTES}"));
        };
        let number = |index: usize| {
            let bytes: [u8; 4] = std::array::from_fn(|byte| header[4 * index + byte]);
            i32::from_le_bytes(bytes)
        };
        let (magic, version) = (number(0), number(1));
        let types = [TokenType::U16, TokenType::U32];
        let Some(token_type) = types.into_iter().find(|one| one.signature()[0] == magic) else {
            let [u16_magic, u32_magic] = types.map(|one| one.signature()[0]);
            return Err(format!("it begins with {magic}, not with {u16_magic} or {u32_magic}"));
        };
        let known = token_type.signature()[1];
        if version != known {
            return Err(format!("its version is {version}, and {known} is supported"));
        }
        let tokens = usize::try_from(number(2));
        let tokens = tokens.map_err(|_| format!("its number of tokens is {}", number(2)))?;
        Ok(Self { token_type, tokens })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_is_that_of_llm_c() {
        let bytes = ShardHeader { token_type: TokenType::U16, tokens: 258 }.to_bytes();
        assert_eq!(bytes[..12], [0x88, 0xd8, 0x34, 1, 1, 0, 0, 0, 2, 1, 0, 0]);
        assert!(bytes[12..].iter().all(|byte| *byte == 0));
        let bytes = ShardHeader { token_type: TokenType::U32, tokens: 1 }.to_bytes();
        assert_eq!(bytes[..12], [0xa1, 0xd9, 0x34, 1, 7, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn vocabulary_of_65536_tokens_fits_u16() {
        assert_eq!(TokenType::of_vocabulary(1 << 16), TokenType::U16);
        assert_eq!(TokenType::of_vocabulary((1 << 16) + 1), TokenType::U32);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn header_is_read_as_it_was_written(tokens in 0..=TOKENS_MAX, is_u16: bool) {
            let token_type = if is_u16 { TokenType::U16 } else { TokenType::U32 };
            let header = ShardHeader { token_type, tokens };
            prop_assert_eq!(ShardHeader::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn any_bytes_are_a_header_or_have_a_reason(
            start in prop::collection::vec(any::<u8>(), 0..16), magic in 0..3,
        ) {
            let mut bytes = start;
            if magic < 2 {
                let magic = [20_240_520i32, 20_240_801][magic as usize];
                bytes.splice(0..0, magic.to_le_bytes());
            }
            bytes.resize(HEADER_BYTES, 0);
            if let Ok(header) = ShardHeader::parse(&bytes) {
                prop_assert!(header.tokens <= TOKENS_MAX);
            }
        }
    }
}
