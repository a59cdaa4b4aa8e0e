//! Groups equal output of many hosts, so that it is shown once. Pure.

use std::collections::BTreeMap;

use crate::pool::nodeset::fold_set;

/// Most bytes that are kept of each stream.
const GATHERED_BYTES_MAX: usize = 16 << 20;

/// Output of one worker to one stream, up to a bound.
#[derive(Default)]
pub struct GatheredOutput {
    text: Vec<u8>,
    dropped_bytes: u64,
}

impl GatheredOutput {
    /// Keeps as many bytes as fit.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(GATHERED_BYTES_MAX - self.text.len());
        self.text.extend_from_slice(&bytes[..kept]);
        self.dropped_bytes += (bytes.len() - kept) as u64;
    }

    /// The bytes that were kept.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Number of bytes that were not kept.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }
}

/// Groups equal items in the order of their first occurrence: folded names, count, item.
pub fn group_equal<'a, T: Ord + Clone>(
    items: impl IntoIterator<Item = (&'a str, T)>,
) -> Vec<(String, usize, T)> {
    let mut order: Vec<(T, Vec<&str>)> = Vec::new();
    let mut indices: BTreeMap<T, usize> = BTreeMap::new();
    for (name, item) in items {
        let index = *indices.entry(item.clone()).or_insert(order.len());
        match order.get_mut(index) {
            Some((_, names)) => names.push(name),
            None => order.push((item, vec![name])),
        }
    }
    let show = |(item, names): (T, Vec<&str>)| {
        let count = names.len();
        (fold_set(names), count, item)
    };
    order.into_iter().map(show).collect()
}

/// Formats outputs below the names of their hosts; hosts without output are left out.
pub fn show_gathered(outputs: &[(&str, &[u8])]) -> Vec<u8> {
    const RULE: &str = "---------------";
    let non_empty = outputs.iter().filter(|(_, text)| !text.is_empty()).copied();
    let mut out = Vec::new();
    for (names, count, text) in group_equal(non_empty) {
        let count = if count == 1 { String::new() } else { format!(" ({count})") };
        out.extend_from_slice(format!("{RULE}\n{names}{count}\n{RULE}\n").as_bytes());
        out.extend_from_slice(text);
        if !text.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_output_is_shown_once() {
        let outputs: [(&str, &[u8]); 5] =
            [("n1", b"a\n"), ("n2", b"b"), ("n3", b"a\n"), ("n4", b""), ("n5", b"a\n")];
        assert_eq!(
            String::from_utf8_lossy(&show_gathered(&outputs)),
            "---------------\nn[1,3,5] (3)\n---------------\na\n---------------\nn2\n---------------\nb\n"
        );
    }

    #[test]
    fn dropped_bytes_are_counted() {
        let mut gathered = GatheredOutput::default();
        for _ in 0..17 {
            gathered.push(&vec![b'x'; 1 << 20]);
        }
        assert_eq!(gathered.text().len(), GATHERED_BYTES_MAX);
        assert_eq!(gathered.dropped_bytes(), 1 << 20);
    }
}
