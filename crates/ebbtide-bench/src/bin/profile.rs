//! Replay checks on one embedded store and nothing else, for a profiler: prints rate and processor time.
//!
//!     ebbtide-bench-profile fjall 1024 10        engine, calls in flight, seconds

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{Scope, Stopwatch, Stores, open_engine};

/// Allocator of the `ebbtide` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ebbtide-bench-profile ENGINE IN_FLIGHT SECONDS";
    let engine = arguments.next().context(usage)?;
    let in_flight: u64 = arguments.next().context(usage)?.parse()?;
    let time = Duration::from_secs(arguments.next().context(usage)?.parse()?);
    let folder = tempfile::tempdir()?;
    let stores = Stores::for_tests(open_engine(&format!("{engine}:{}", folder.path().display())).await?);
    let replays = stores.replays(&Scope::tenant("acme")?);
    let next = Arc::new(AtomicU64::new(0));
    let (watch, before) = (Stopwatch::start(), processor_seconds()?);
    let callers: Vec<_> = (0..in_flight)
        .map(|_| {
            let (replays, next) = (replays.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                while watch.elapsed() < time {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let proof = Proof::new("https://api.example/token", format!("jti-{number:020}"));
                    let seen = replays.check(&proof).await?;
                    ensure!(matches!(seen, ReplayOutcome::Fresh { .. }), "a new proof is a replay");
                }
                Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    #[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
    let checks = next.load(Ordering::Relaxed) as f64;
    let seconds = watch.elapsed().as_secs_f64();
    let micros = (processor_seconds()? - before) * 1e6 / checks;
    println!(
        "{engine}, {in_flight} in flight: {:.0} checks/s, {micros:.2} us of processor time",
        checks / seconds
    );
    Ok(())
}

/// Processor time of this process.
fn processor_seconds() -> Result<f64> {
    let stat = procfs::process::Process::myself()?.stat()?;
    #[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
    let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Ok(seconds)
}
