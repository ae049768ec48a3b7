//! The `ebbtide` command.

use std::process::ExitCode;

/// A request's memory is allocated by one thread and freed by another; the system allocator costs a seventh of the
/// rate there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    ebbtide_cli::main().await
}
