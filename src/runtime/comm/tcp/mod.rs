//! TCP between nodes.
//!
//! | file | contents |
//! |---|---|
//! | `mesh` | connections and their authentication |
//! | `striping` | messages over several streams |
//! | `buffer_pool` | buffers of messages |

pub(crate) mod buffer_pool;
pub(crate) mod mesh;
pub(crate) mod striping;
