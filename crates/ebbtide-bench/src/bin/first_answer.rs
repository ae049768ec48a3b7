//! `ebbtide-bench-first-answer URL`: opens the engine of a store on DynamoDB, asks it one thing, and prints how long that
//! took: the cost of a cold start.

use std::process::ExitCode;

use ebbtide::{Clock, Key, Kind, Scope, Stopwatch, SystemClock, open_engine as open};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: ebbtide-bench-first-answer URL");
        return ExitCode::from(2);
    };
    let stopwatch = Stopwatch::start();
    match first_answer(&url, stopwatch).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn first_answer(url: &str, stopwatch: Stopwatch) -> ebbtide::Result<()> {
    let millis = || stopwatch.elapsed().as_secs_f64() * 1_000.0;
    let store = open(url).await?;
    let opened = millis();
    let key = Key::new(Kind::Probe, &Scope::Global, &["first".into()], &[])?;
    store.get(&key, SystemClock.now()).await?;
    let first = millis();
    store.get(&key, SystemClock.now()).await?;
    println!("opened {opened:.1} ms, first answer {first:.1} ms, the next {:.1} ms", millis() - first);
    Ok(())
}
