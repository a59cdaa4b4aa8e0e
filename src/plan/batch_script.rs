//! Text of a batch script of Slurm that runs one line of remuda. Pure.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::base::shell::{quoted, quoted_line};

/// What a batch script asks Slurm for, and what it runs.
#[derive(Clone, Debug)]
pub struct BatchScript {
    /// Name of the job.
    pub name: String,
    /// Number of nodes.
    pub nodes: u32,
    /// GPUs of each node.
    pub gpus: Option<u32>,
    /// Time limit of the job.
    pub time: Option<Duration>,
    /// Which jobs of an array are queued: `0-9`.
    pub array: Option<String>,
    /// Further options of sbatch, with their values.
    pub further: Vec<(String, Option<String>)>,
    /// Whether Slurm may queue the job again: after the failure of a node, a preemption, or `scontrol requeue`.
    pub requeue: bool,
    /// Directory of the log.
    pub log_dir: String,
    /// Path of the log, absolute or below that directory; `None`: named after the job.
    pub output: Option<String>,
    /// The line, program first.
    pub line: Vec<OsString>,
}

/// A word that no script can contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the word {0} has control characters, which a batch script cannot contain")]
pub struct UnprintableWord(pub String);

impl BatchScript {
    /// Returns the text of the script.
    ///
    /// # Errors
    /// If a word of the line has control characters.
    pub fn text(&self) -> Result<String, UnprintableWord> {
        let has_control = |word: &&OsString| word.as_bytes().iter().any(u8::is_ascii_control);
        let values: Vec<_> = self.options().into_iter().filter_map(|(_, value)| value).collect();
        let values: Vec<_> = values.into_iter().map(OsString::from).collect();
        if let Some(word) = self.line.iter().chain(&values).find(has_control) {
            return Err(UnprintableWord(quoted(word)));
        }
        let mut text = String::from("#!/bin/sh\n");
        for (option, value) in self.options() {
            let _ = match value {
                Some(value) => writeln!(text, "#SBATCH --{option}={}", in_quotes(&value)),
                None => writeln!(text, "#SBATCH --{option}"),
            };
        }
        // `exec`: Slurm's signals reach remuda, not a shell that does not pass them on.
        let _ = writeln!(text, "exec {}", quoted_line(&self.line));
        Ok(text)
    }

    fn options(&self) -> Vec<(&str, Option<String>)> {
        let with = |value: &dyn ToString| Some(value.to_string());
        let mut options = vec![
            ("job-name", with(&self.name)),
            ("nodes", with(&self.nodes)),
            ("ntasks-per-node", with(&1)),
        ];
        options.extend(self.gpus.map(|gpus| ("gpus-per-node", with(&gpus))));
        options.extend(self.time.map(|time| ("time", Some(slurm_time(time)))));
        options.extend(self.array.iter().map(|array| ("array", with(array))));
        options.extend(self.further.iter().map(|(option, value)| (&**option, value.clone())));
        options.push(if self.requeue { ("requeue", None) } else { ("no-requeue", None) });
        options.push(("output", Some(self.log())));
        options.push(("open-mode", with(&"append")));
        options
    }

    /// Returns the path of the log, in which Slurm replaces `%j`, or `%A` and `%a`, by the id of the job.
    pub fn log(&self) -> String {
        let id = if self.array.is_some() { "%A_%a" } else { "%j" };
        match &self.output {
            Some(path) if path.starts_with('/') => path.clone(),
            Some(path) => format!("{}/{path}", self.log_dir),
            None => format!("{}/{}-{id}.log", self.log_dir, self.name),
        }
    }
}

/// A value as sbatch reads it: in quotes if it has blanks.
fn in_quotes(value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains([' ', '"', '\'', '#', '\\']);
    if is_plain {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A time as Slurm reads it: `DAYS-HH:MM:SS`, at least a minute, because Slurm counts minutes.
fn slurm_time(time: Duration) -> String {
    let seconds = time.as_secs().max(60);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> BatchScript {
        BatchScript {
            name: "train".to_owned(),
            nodes: 4,
            gpus: Some(8),
            time: Some(Duration::from_secs(26 * 3600 + 90)),
            array: None,
            further: vec![("partition".to_owned(), Some("a100".to_owned()))],
            requeue: true,
            log_dir: "/home/a/logs".to_owned(),
            output: None,
            line: ["remuda", "run", "train.py", "--name", "it's"].map(OsString::from).to_vec(),
        }
    }

    #[test]
    fn script_asks_for_nodes_and_becomes_remuda() {
        assert_eq!(
            script().text().expect("printable words"),
            "#!/bin/sh\n#SBATCH --job-name=train\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n\
             #SBATCH --gpus-per-node=8\n#SBATCH --time=1-02:01:30\n\
             #SBATCH --partition=a100\n#SBATCH --requeue\n#SBATCH --output=/home/a/logs/train-%j.log\n\
             #SBATCH --open-mode=append\nexec remuda run train.py --name 'it'\\''s'\n"
        );
        let plain = BatchScript { gpus: None, time: None, requeue: false, ..script() };
        let text = plain.text().expect("printable words");
        assert!(text.contains("#SBATCH --no-requeue\n") && !text.contains("--time"), "{text}");
    }

    #[test]
    fn array_has_a_log_for_each_job() {
        let further = [("exclusive", None), ("comment", Some("a \"b\""))];
        let further = further.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        let array = BatchScript {
            array: Some("0-9".to_owned()),
            further: further.to_vec(),
            log_dir: "/home/a b".to_owned(),
            ..script()
        };
        let text = array.text().expect("printable words");
        assert!(text.contains("#SBATCH --array=0-9\n#SBATCH --exclusive\n"), "{text}");
        assert!(text.contains("#SBATCH --comment=\"a \\\"b\\\"\"\n"), "{text}");
        assert!(text.contains("#SBATCH --output=\"/home/a b/train-%A_%a.log\"\n"), "{text}");
    }

    #[test]
    fn chosen_log_is_below_the_directory_unless_it_is_absolute() {
        let log = |path: &str| BatchScript { output: Some(path.to_owned()), ..script() }.log();
        assert_eq!(log("out-%j.txt"), "/home/a/logs/out-%j.txt");
        assert_eq!(log("/scratch/out.txt"), "/scratch/out.txt");
    }

    #[test]
    fn words_with_control_characters_are_refused() {
        let line = vec!["remuda".into(), "a\nb".into()];
        let error = BatchScript { line, ..script() }.text().expect_err("a line break");
        assert_eq!(error, UnprintableWord(r"$'a\nb'".to_owned()));
    }
}
