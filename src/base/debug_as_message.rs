//! The debug form of errors that users see: Rust prints it if `main` returns an error.

/// Makes the debug form of errors their message.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {
        $(impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        })+
    };
}

pub(crate) use debug_as_message;
