//! Letters that stand for bytes in `vocab.json`, `merges.txt` and `tokenizer.json`: those of GPT-2.
//!
//! Printable bytes of Latin-1 stand for themselves; the others are numbered from U+0100, so that no token
//! contains a blank or a control character.

use std::sync::LazyLock;

/// Byte of every letter below U+0144; `None` where no byte has that letter.
static BYTE_OF: LazyLock<[Option<u8>; 256 + 68]> = LazyLock::new(|| {
    let mut bytes = [None; 256 + 68];
    let mut replaced = 256;
    for byte in 0..=255u8 {
        let is_itself = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let letter = if is_itself { usize::from(byte) } else { replaced };
        replaced += usize::from(!is_itself);
        bytes[letter] = Some(byte);
    }
    bytes
});

/// Returns the bytes that a token's letters stand for; the error is a letter that stands for none.
pub(super) fn bytes_of_letters(token: &str) -> Result<Vec<u8>, char> {
    let byte = |letter: char| BYTE_OF.get(letter as usize).copied().flatten().ok_or(letter);
    token.chars().map(byte).collect()
}

/// Returns the letters of bytes, for tests that write vocabularies.
#[cfg(test)]
pub(super) fn letters_of_bytes(bytes: &[u8]) -> String {
    let letter =
        |byte: &u8| BYTE_OF.iter().position(|of| *of == Some(*byte)).expect("all have one");
    bytes.iter().filter_map(|byte| char::from_u32(letter(byte) as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_letter() {
        let mut bytes: Vec<u8> = BYTE_OF.iter().flatten().copied().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn letters_are_those_of_gpt2() {
        assert_eq!(bytes_of_letters("ĠaĊ"), Ok(b" a\n".to_vec()));
        assert_eq!(bytes_of_letters("ÃŃ\u{120}Ń"), Ok(vec![0xc3, 0xad, b' ', 0xad]));
        assert_eq!(bytes_of_letters("a b"), Err(' '));
        assert_eq!(bytes_of_letters("中"), Err('中'));
    }
}
