//! Listings of kinds without a map in order, and removals by them.

use super::*;

/// Seeds that are odd have no maps.
const UNLISTED: u64 = 1;

fn all() -> Prefix {
    Prefix::kind_wide(Kind::Probe)
}

fn records(rig: &Rig, now: u64) -> Vec<u64> {
    let (mut numbers, mut after) = (Vec::new(), None);
    loop {
        let page = rig.drive(rig.store.scan(&all(), after.as_ref(), 40, at(now))).unwrap();
        assert!(page.items.len() <= 40);
        for (key, _) in page.items {
            let crate::model::key::Part::Int(number) = key.sort()[0] else { panic!("the tests use numbers") };
            numbers.push(number);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return numbers,
        }
    }
}

#[test]
fn every_record_of_a_kind_without_a_map_is_listed_once_in_order() {
    let rig = Rig::new(UNLISTED, None);
    for number in 0..1_300 {
        rig.put(number, "old", if number % 5 == 0 { SECOND } else { DAY }, 0);
        if number == 600 {
            rig.retire(1);
        }
    }
    for number in (0..1_300).step_by(7) {
        assert!(rig.commit(Write::Delete { key: key(number) }, 2));
    }
    for number in (1..1_300).step_by(50) {
        rig.put(number, "new", DAY, 2);
    }
    let expected = |now: u64| -> Vec<u64> {
        let is_live = |number: &u64| {
            let was_put = number % 50 == 1;
            was_put || (!number.is_multiple_of(7) && (!number.is_multiple_of(5) || now < SECOND))
        };
        (0..1_300).filter(is_live).collect()
    };
    assert_eq!(records(&rig, 3), expected(3));
    assert_eq!(records(&rig, 2 * SECOND), expected(2 * SECOND));
}

#[test]
fn a_walk_sees_what_retires_and_what_is_rewritten_meanwhile() {
    let rig = Rig::new(UNLISTED, None);
    for number in 0..1_300 {
        rig.put(number, "old", DAY, 0);
        if number == 500 {
            rig.retire(1);
        }
    }
    let (mut found, mut after) = (Vec::new(), None);
    for step in 0.. {
        let page = rig.drive(rig.store.scan(&all(), after.as_ref(), 50, at(2))).unwrap();
        found.extend(page.items.into_iter().map(|(key, _)| key));
        after = page.next;
        if after.is_none() {
            break;
        }
        match step % 5 {
            0 => rig.retire(2),
            1 => (step..1_300).step_by(97).for_each(|number| rig.put(number, "new", DAY, 2)),
            2 => drop(rig.store.core.sweep(at(2), &crate::backend::Budget::everything(&[Kind::Probe]))),
            _ => {}
        }
    }
    assert_eq!(found, (0..1_300).map(key).collect::<Vec<_>>());
}

#[test]
fn a_removal_passes_over_any_number_of_expired_records() {
    for seed in [0, UNLISTED] {
        let rig = Rig::new(seed, None);
        for number in 0..1_300 {
            rig.put(number, "x", if number < 1_200 { SECOND } else { DAY }, 0);
        }
        let erased = rig.drive(rig.store.erase(&all(), at(2 * SECOND))).unwrap();
        assert_eq!((erased.removed, erased.more), (100, false));
        assert!(records(&rig, 2 * SECOND).is_empty());
    }
}

#[test]
fn a_listing_and_a_count_wait_for_no_sweep_and_no_backup() {
    let rig = Rig::new(0, None);
    rig.put(1, "one", DAY, 0);
    // Sweeps that wait for their turn stand in another queue than listings and counts do.
    let budget = crate::backend::Budget::everything(&[Kind::Probe]);
    let mut sweeping = Box::pin(rig.store.sweep(at(1), &budget));
    assert!(poll(&mut sweeping).is_pending());
    let mut counting = Box::pin(rig.store.stats(at(1)));
    assert!(poll(&mut counting).is_pending());
    let all = all();
    let mut listing = Box::pin(rig.store.scan(&all, None, 10, at(1)));
    assert!(poll(&mut listing).is_pending());
    assert!(rig.store.walks.step());
    assert!(poll(&mut listing).is_ready());
    let alone = pollster::block_on(rig.store.core.maintenance.lock());
    assert!(rig.store.counts.step());
    assert!(poll(&mut counting).is_ready(), "a count waits for no sweep");
    drop(alone);
    assert!(poll(&mut sweeping).is_pending());
    assert!(rig.store.chores.step());
    assert!(poll(&mut sweeping).is_ready());
}
