//! [`CsvFiles`]: one file for each scalar, as DeepSpeed's `csv_monitor` writes them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::train::report::scalar::Scalar;

/// Directory of files, whose names are the tags with `_` for `/`. A row is `step,value`; every run begins
/// with a header.
#[derive(Debug)]
pub(crate) struct CsvFiles {
    dir: PathBuf,
    /// Position up to which an earlier part of this run has rows that count.
    resumed_after: Option<u64>,
    files: BTreeMap<String, File>,
}

impl CsvFiles {
    /// Creates the directory if it does not exist. Rows after `resumed_after` are removed from files of an
    /// earlier part of this run, because the run repeats them.
    pub(crate) fn create(dir: &Path, resumed_after: Option<u64>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        // A directory that cannot be written is found here and not at the first step.
        let probe = dir.join(".remuda-probe");
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        Ok(Self { dir: dir.to_owned(), resumed_after, files: BTreeMap::new() })
    }

    /// Adds a row to the file of every scalar, at `at` on the horizontal axis.
    pub(crate) fn write(&mut self, at: u64, scalars: &[Scalar]) -> io::Result<()> {
        for Scalar { tag, value } in scalars {
            if !self.files.contains_key(tag) {
                let name = format!("{}.csv", tag.replace(['/', ' '], "_"));
                let file = open(&self.dir.join(name), tag, self.resumed_after)?;
                self.files.insert(tag.clone(), file);
            }
            let file = self.files.get_mut(tag).expect("it was opened before");
            file.write_all(format!("{at},{value:?}\r\n").as_bytes())?;
        }
        Ok(())
    }
}

/// Opens the file of a tag for appending, with a header where this run begins.
fn open(path: &Path, tag: &str, resumed_after: Option<u64>) -> io::Result<File> {
    let header = format!("step,{}\r\n", tag.rsplit('/').next().unwrap_or(tag));
    let is_continued = match resumed_after {
        Some(last) => remove_rows(path, &header, last)?,
        None => false,
    };
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    if !is_continued {
        file.write_all(header.as_bytes())?;
    }
    Ok(file)
}

/// Removes rows after `last` from the part of a file that begins with its last header. Returns whether there
/// is such a part.
fn remove_rows(path: &Path, header: &str, last: u64) -> io::Result<bool> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        text => text?,
    };
    let Some(start) = text.rfind(header) else { return Ok(false) };
    fs::write(path, kept_rows(&text, start + header.len(), last))?;
    Ok(true)
}

/// The text without rows that are behind `start` and later than `last`, and without an incomplete row.
fn kept_rows(text: &str, start: usize, last: u64) -> String {
    let (earlier, rows) = text.split_at(start);
    let is_kept = |row: &&str| {
        let at = row.split(',').next().and_then(|at| at.parse::<u64>().ok());
        row.ends_with('\n') && at.is_some_and(|at| at <= last)
    };
    let rows: String = rows.split_inclusive('\n').filter(is_kept).collect();
    earlier.to_owned() + &rows
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn files_have_the_rows_of_deepspeed() {
        let dir = &std::env::temp_dir().join(format!("remuda-csv-{}", process::id()));
        let rate = |value| [Scalar { tag: "Train/Samples/lr".to_owned(), value }];
        let read = || fs::read_to_string(dir.join("Train_Samples_lr.csv")).expect("a file");
        let mut first = CsvFiles::create(dir, None).expect("a directory");
        for (at, value) in [(16, 0.0), (32, 0.5), (48, 1e-5)] {
            first.write(at, &rate(value)).expect("a row");
        }
        assert_eq!(read(), "step,lr\r\n16,0.0\r\n32,0.5\r\n48,1e-5\r\n");
        let mut resumed = CsvFiles::create(dir, Some(16)).expect("a directory");
        resumed.write(32, &rate(0.25)).expect("a row");
        assert_eq!(read(), "step,lr\r\n16,0.0\r\n32,0.25\r\n");
        let mut other = CsvFiles::create(dir, None).expect("a directory");
        other.write(16, &rate(2.0)).expect("a row");
        assert_eq!(read(), "step,lr\r\n16,0.0\r\n32,0.25\r\nstep,lr\r\n16,2.0\r\n");
        let mut resumed = CsvFiles::create(dir, Some(0)).expect("a directory");
        resumed.write(16, &rate(3.0)).expect("a row");
        assert_eq!(read(), "step,lr\r\n16,0.0\r\n32,0.25\r\nstep,lr\r\n16,3.0\r\n");
        fs::remove_dir_all(dir).expect("the directory of this test");
    }
}
