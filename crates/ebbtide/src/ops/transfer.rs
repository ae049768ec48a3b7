//! Transfer of records: between engines unchanged, and as JSON lines from and to other systems.

mod copy;
mod lines;
mod sealed;

pub use copy::{Copied, Copier};
pub use lines::{Exporter, ImportOutcome, Importer};
