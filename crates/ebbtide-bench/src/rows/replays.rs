//! Durable replay checks on the embedded engines, compared with Redis.

use std::time::Duration;

use anyhow::Result;
use ebbtide::Stores;
use ebbtide_bench::results::{Bar, Figure};

use super::grouped;
use crate::context::{Context, ENGINES, embedded, shown};
use crate::cpu::Whose;
use crate::load::callers;
use crate::load::rounds::{Contender, alternate};
use crate::measured::{Draft, Measured};
use crate::peers::redis::{Log, Redis};
use crate::records::replay_check;

const IN_FLIGHT: [usize; 3] = [1, 64, 1_024];

/// Promises of the two sides, and the bias of the comparison.
const NOTE: &str = "Both answer when it is on the disk. Redis is asked through TCP by its own load generator, \
     one command at a time on each connection; the library is called in the process, which saves it the network and \
     makes it share its processors with the callers.";

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let always = Redis::start(context, Log::Always).await?;
    let every_second = Redis::start(context, Log::EverySecond).await?;
    let off = Redis::start(context, Log::Off).await?;
    let time = context.round();
    // Declared before the stores in them, so that the stores close first.
    let mut folders = Vec::new();
    let mut sides = vec![
        always.set_nx(64, time),
        always.set_nx(1, time),
        every_second.set_nx(64, time),
        off.set_nx(64, time),
    ];
    for engine in ENGINES {
        let folder = context.folder(engine)?;
        let stores = Stores::for_tests(embedded(engine, folder.path()).await?);
        folders.push(folder);
        sides.extend(IN_FLIGHT.map(|in_flight| checks(engine, &stores, in_flight, time)));
    }
    let mut figures = alternate(context.rounds(), &mut sides).await?.into_iter();
    let mut peer = || figures.next().expect("a figure for each side");
    let (always, always_alone, every_second, off) = (peer(), peer(), peer(), peer());
    for engine in ENGINES {
        for in_flight in IN_FLIGHT {
            let ours = figures.next().expect("a figure for each side");
            let (peer, bar) = match in_flight {
                1 => (&always_alone, None),
                64 => (&always, Some(Bar::AtLeast(2.5))),
                _ => (&always, Some(Bar::AtLeast(6.0))),
            };
            let mut row = |id: String, peer: &Figure, bar, note: &str| {
                let draft = Draft {
                    id,
                    what: format!(
                        "replay checks, {}, {} in flight",
                        shown(engine),
                        grouped(in_flight as u64)
                    ),
                    unit: "per second",
                    bar,
                    note: note.to_owned(),
                };
                measured.row(draft, ours.clone(), Some(peer.clone()));
            };
            let id = format!("replays-{engine}-{in_flight}");
            row(id.clone(), peer, bar, NOTE);
            let most = match in_flight {
                64 => Some(10.0),
                1_024 => Some(5.0),
                _ => None,
            };
            if in_flight == 64 {
                let lost = "Ours is on the disk before the answer; Redis's is not, and a crash takes the last second \
                     or two. ";
                row(format!("{id}-beside-everysec"), &every_second, None, &format!("{lost}{NOTE}"));
                let lost = "Ours is on the disk before the answer; Redis keeps nothing there, and a crash takes all. ";
                row(format!("{id}-beside-off"), &off, None, &format!("{lost}{NOTE}"));
            }
            if let Some(most) = most {
                let what =
                    format!("a replay check, {}, {} in flight", shown(engine), grouped(in_flight as u64));
                measured.processor_time(&id, &what, &ours, "both", most);
            }
        }
    }
    Ok(())
}

/// Replay checks in a closed loop.
pub(super) fn checks(engine: &str, stores: &Stores, in_flight: usize, time: Duration) -> Contender {
    let name = format!("{}, {} in flight", shown(engine), grouped(in_flight as u64));
    Contender::closed(name, &[("both", Whose::Ours)], callers(&replay_check(stores), in_flight), time)
}
