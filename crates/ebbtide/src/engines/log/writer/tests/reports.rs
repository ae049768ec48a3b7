//! The acknowledged sequence, in the log of the process and as a metric.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key as MetricKey, KeyName, Metadata, Recorder, SharedString, Unit,
};

use super::*;

/// Longest wait for a line that is due at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends each line.
#[derive(Clone)]
struct Lines(Sender<String>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the gauge of the acknowledged sequence.
#[derive(Default)]
struct Acknowledged(AtomicU64);

impl GaugeFn for Acknowledged {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::SeqCst);
    }
}

struct Metrics(Arc<Acknowledged>);

impl Recorder for Metrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &MetricKey, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &MetricKey, _: &Metadata<'_>) -> Gauge {
        if key.name() == "ebbtide_log_acknowledged" {
            Gauge::from_arc(Arc::clone(&self.0))
        } else {
            Gauge::noop()
        }
    }

    fn register_histogram(&self, _: &MetricKey, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Runs the thread that writes, with reports so often.
fn start(
    log: &Arc<Log>,
    every: Duration,
) -> (std::thread::JoinHandle<()>, Receiver<String>, Arc<Acknowledged>) {
    let ((lines, said), gauge) = (channel(), Arc::new(Acknowledged::default()));
    let (log, recorder) = (Arc::clone(log), Metrics(Arc::clone(&gauge)));
    let lines = Lines(lines);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).finish();
    let thread = std::thread::spawn(move || {
        tracing::subscriber::with_default(subscriber, || {
            metrics::with_local_recorder(&recorder, || log.write_and_report(every));
        });
    });
    (thread, said, gauge)
}

fn stop(log: &Log, thread: std::thread::JoinHandle<()>) {
    log.queue().stopping = true;
    log.work.notify_all();
    thread.join().unwrap();
}

fn sequence(line: &str) -> u64 {
    assert!(line.contains("highest acknowledged group of the log"), "{line}");
    line.trim_end().rsplit_once("sequence=").unwrap().1.parse().unwrap()
}

#[test]
fn the_acknowledged_sequence_is_reported_while_the_log_is_idle_and_only_if_it_has_changed() {
    let log = sim(&SimDisk::new(1));
    let (thread, said, gauge) = start(&log, Duration::ZERO);
    log.append(&frames(1)).unwrap();
    // The group, and the seal behind it: nothing is written after that, and the last line names it.
    while sequence(&said.recv_timeout(PATIENCE).expect("the line of the seal")) < 2 {}
    assert_eq!(gauge.0.load(Ordering::SeqCst), 2.0_f64.to_bits());
    stop(&log, thread);
    assert!(said.try_recv().is_err(), "the last line said it all");
}

#[test]
fn the_acknowledged_sequence_is_reported_when_the_log_is_closed_and_when_it_fails() {
    let disk = SimDisk::new(1);
    let log = sim(&disk);
    let (thread, said, gauge) = start(&log, Duration::from_secs(3_600));
    let at = log.append(&frames(1)).unwrap();
    pollster::block_on(log.durable(at)).unwrap();
    stop(&log, thread);
    assert_eq!(said.try_iter().map(|line| sequence(&line)).collect::<Vec<_>>(), [2], "closing seals the log");
    assert_eq!(gauge.0.load(Ordering::SeqCst), 2.0_f64.to_bits());
    let log = sim(&disk);
    let (thread, said, _) = start(&log, Duration::from_secs(3_600));
    let at = log.append(&frames(2)).unwrap();
    pollster::block_on(log.durable(at)).unwrap();
    log.poison("a test");
    thread.join().unwrap();
    let last: Vec<_> = said.try_iter().filter(|line| line.contains("sequence=")).collect();
    assert_eq!(sequence(&last[0]), log.acknowledged());
}
