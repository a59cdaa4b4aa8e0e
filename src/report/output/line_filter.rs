//! Copies of the lines that contain one of some texts: torchrun's `--duplicate-stdout-filters`.

use memchr::memmem::Finder;

/// Longest line; the rest of a longer one is a line of its own.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Finds the lines of one stream that contain a text.
pub(super) struct LineFilter {
    /// Prefix of the copies.
    prefix: Vec<u8>,
    texts: Vec<Finder<'static>>,
    /// The line that has no end yet.
    line: Vec<u8>,
}

impl LineFilter {
    /// A filter for lines with one of these texts.
    pub(super) fn new(prefix: Vec<u8>, texts: &[String]) -> Self {
        let texts = texts.iter().map(|text| Finder::new(text).into_owned()).collect();
        Self { prefix, texts, line: Vec::new() }
    }

    /// Takes bytes of the stream; returns the lines that ended and contain a text.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = piece;
            while LINE_BYTES_MAX <= self.line.len() + rest.len() {
                let (head, tail) = rest.split_at(LINE_BYTES_MAX - self.line.len());
                self.line.extend_from_slice(head);
                self.end_line(&mut found);
                rest = tail;
            }
            self.line.extend_from_slice(rest);
            if rest.ends_with(b"\n") {
                self.end_line(&mut found);
            }
        }
        found
    }

    /// Ends the stream; returns its last line if that has no end and contains a text.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut found = Vec::new();
        self.end_line(&mut found);
        found
    }

    fn end_line(&mut self, found: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() || !self.texts.iter().any(|text| text.find(&line).is_some()) {
            return;
        }
        found.extend_from_slice(&self.prefix);
        found.extend_from_slice(&line);
        if !line.ends_with(b"\n") {
            found.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_text_are_copied_whole() {
        let mut filter = LineFilter::new(b"[r0]:".to_vec(), &["loss".to_owned(), "nan".to_owned()]);
        assert_eq!(filter.push(b"step 1\nlo"), b"");
        assert_eq!(filter.push(b"ss 2\nx\nit is nan\nlast loss"), b"[r0]:loss 2\n[r0]:it is nan\n");
        assert_eq!(filter.finish(), b"[r0]:last loss\n");
        assert_eq!(filter.finish(), b"");
    }

    #[test]
    fn endless_line_is_cut() {
        let mut filter = LineFilter::new(Vec::new(), &["x".to_owned()]);
        let found = filter.push(&vec![b'x'; 2 * LINE_BYTES_MAX + 1]);
        assert_eq!(found.len(), 2 * (LINE_BYTES_MAX + 1));
        assert!(filter.line.len() < LINE_BYTES_MAX);
    }

    proptest::proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[ab\n]{0,60}", at in 0usize..60) {
            let whole = |parts: &[&[u8]]| {
                let mut filter = LineFilter::new(b"> ".to_vec(), &["ab".to_owned()]);
                let mut found = Vec::new();
                for part in parts {
                    found.extend(filter.push(part));
                }
                found.extend(filter.finish());
                found
            };
            let (head, tail) = text.as_bytes().split_at(at.min(text.len()));
            proptest::prop_assert_eq!(whole(&[head, tail]), whole(&[text.as_bytes()]));
        }
    }
}
