//! Output of a job: from the pieces that workers write to lines on the screen and in files.

pub mod gather;
mod line_filter;
mod live_status;
mod prefix_text;
mod prefixed_lines;
mod redirects;
mod reporter;
mod router;
mod stream_buffer;
mod style;
mod tail;

pub use prefix_text::{PLACEHOLDERS, WorkerLabel, unknown_placeholder};
pub use prefixed_lines::ControlChars;
pub use redirects::{OutputStreams, Redirects, StreamSet};
pub use reporter::{Consumed, OutputLink, OutputSender, Reporter};
pub use router::OutputRouter;
pub use style::Style;
