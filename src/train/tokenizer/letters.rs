//! Classes of characters: those of Unicode's `\p{L}`, `\p{N}` and `\s`, which `char` does not have exactly.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// Class of a character. Every character has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CharClass {
    /// None of the other classes: punctuation, signs, marks.
    Other,
    /// `\p{L}`.
    Letter,
    /// `\p{N}`.
    Number,
    /// `\s`.
    Space,
}

/// Class of every character by its number: a byte each, of which a text in one script touches some pages.
static CLASSES: LazyLock<Vec<CharClass>> = LazyLock::new(|| {
    let mut classes = vec![CharClass::Other; char::MAX as usize + 1];
    fill(&mut classes, r"\p{L}", CharClass::Letter);
    fill(&mut classes, r"\p{N}", CharClass::Number);
    for (number, class) in classes.iter_mut().enumerate() {
        if char::from_u32(number as u32).is_some_and(char::is_whitespace) {
            *class = CharClass::Space;
        }
    }
    classes
});

fn fill(classes: &mut [CharClass], pattern: &str, class: CharClass) {
    let parsed = regex_syntax::parse(pattern).expect("a class of Unicode");
    let HirKind::Class(Class::Unicode(found)) = parsed.kind() else {
        unreachable!("`{pattern}` is a class of characters");
    };
    for range in found.ranges() {
        classes[range.start() as usize..=range.end() as usize].fill(class);
    }
}

/// Table of classes, borrowed once for many characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct CharClasses(&'static [CharClass]);

impl CharClasses {
    pub(super) fn get() -> Self {
        Self(&CLASSES)
    }

    pub(super) fn of(self, letter: char) -> CharClass {
        self.0[letter as usize]
    }

    /// Class of the first character.
    pub(super) fn first(self, text: &str) -> Option<CharClass> {
        text.chars().next().map(|letter| self.of(letter))
    }

    /// Number of bytes at the beginning of a text whose characters have this class.
    pub(super) fn run(self, text: &str, class: CharClass) -> usize {
        let end = text.char_indices().find(|(_, letter)| self.of(*letter) != class);
        end.map_or(text.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(letters: &str, class: CharClass) {
        for letter in letters.chars() {
            assert_eq!(CharClasses::get().of(letter), class, "{letter:?}");
        }
    }

    #[test]
    fn classes_are_those_of_unicode() {
        check("aZéßЖ中あ𝒜ªʰ\u{1c5}", CharClass::Letter);
        check("07²½Ⅷ٣〇\u{1d7ce}", CharClass::Number);
        check(" \t\n\r\u{b}\u{c}\u{85}\u{a0}\u{2003}\u{2028}\u{3000}", CharClass::Space);
        // A letter with a circle and a vowel sign are alphabetic for `char`, but no letters.
        check("_'-\u{24b6}\u{93e}\u{300}\u{200b}\u{200d}\u{feff}😀\0", CharClass::Other);
    }

    #[test]
    fn white_space_is_that_of_regular_expressions() {
        let pattern = regex::Regex::new(r"^\s$").expect("a pattern");
        for letter in (0..=char::MAX as u32).filter_map(char::from_u32) {
            let is_space = CharClasses::get().of(letter) == CharClass::Space;
            assert_eq!(is_space, pattern.is_match(letter.encode_utf8(&mut [0; 4])), "{letter:?}");
        }
    }
}
