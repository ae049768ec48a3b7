//! Transfer of records: between engines unchanged, and as JSON lines from and to other systems.

mod copy;
mod fields;
mod lines;
mod plain;
mod sealed;

pub use copy::{Copied, Copier};
pub use lines::{Exporter, ImportOutcome, Importer};
