//! Races with exactly one winner.

use super::Rig;
use ebbtide::model::key::Key;
use ebbtide::model::record::Record;
use ebbtide::model::write::{Commit, Write};

/// Number of tasks that begin together.
const TASKS: usize = 24;

/// Number of rounds of each race, since the tasks of one round may happen to run in sequence.
const ROUNDS: usize = 8;

/// Races one write of each task, and returns the indexes of those that were applied.
async fn winners(rig: &Rig, now: u64, write: impl Fn(&Rig, usize) -> Write) -> Vec<usize> {
    let answers = rig
        .together(TASKS, |rig, index| {
            let write = write(&rig, index);
            async move { rig.applied(write, now).await }
        })
        .await;
    answers.iter().enumerate().filter_map(|(index, applied)| applied.then_some(index)).collect()
}

async fn race_inserts(rig: &Rig, key: &Key, now: u64) {
    let insert = |rig: &Rig, index: usize| Write::Insert {
        key: key.clone(),
        record: rig.record(&index.to_string(), 1_000),
    };
    let winners = winners(rig, now, insert).await;
    assert_eq!(winners.len(), 1, "exactly one insert wins");
    let stored = rig.get(key, now).await.expect("the winner's record is there");
    assert_eq!(stored.value, winners[0].to_string(), "the stored record is the winner's");
}

pub(super) async fn one_insert_wins(rig: Rig) {
    for round in 0..ROUNDS {
        race_inserts(&rig, &rig.key(&format!("r{round}")), 0).await;
    }
}

pub(super) async fn one_insert_over_an_expired_record_wins(rig: Rig) {
    for round in 0..ROUNDS {
        let key = rig.key(&format!("r{round}"));
        rig.stored(&key, "old", 100).await;
        race_inserts(&rig, &key, 100).await;
    }
}

pub(super) async fn one_of_the_inserts_of_several_batches_wins(rig: Rig) {
    const KEYS: usize = 12;
    let keys: Vec<Key> = (0..KEYS).map(|number| rig.key(&format!("k{number}"))).collect();
    let answers = rig.together(TASKS, |rig, index| {
        // Each task begins elsewhere, so that no two reach the keys in the same order.
        let order: Vec<usize> = (0..KEYS).map(|number| (number + index) % KEYS).collect();
        let insert = |number: &usize| Write::Insert {
            key: keys[*number].clone(),
            record: rig.record(&index.to_string(), 1_000),
        };
        let writes = order.iter().map(insert).collect();
        async move { order.into_iter().zip(rig.commit_each(writes, 0).await).collect::<Vec<_>>() }
    });
    let answers = answers.await;
    for (number, key) in keys.iter().enumerate() {
        let won = |answer: &Vec<(usize, Commit)>| answer.contains(&(number, Commit::Applied));
        let winners: Vec<usize> = (0..TASKS).filter(|index| won(&answers[*index])).collect();
        assert_eq!(winners.len(), 1, "exactly one insert wins");
        let stored = rig.get(key, 0).await.expect("the winner's record is there");
        assert_eq!(stored.value, winners[0].to_string(), "the stored record is the winner's");
    }
}

pub(super) async fn one_replace_wins(rig: Rig) {
    for round in 0..ROUNDS {
        let key = rig.key(&format!("r{round}"));
        let old = rig.stored(&key, "old", 1_000).await;
        let replace = |rig: &Rig, index: usize| Write::Replace {
            key: key.clone(),
            expected: old.version,
            record: rig.record(&index.to_string(), 1_000),
        };
        let winners = winners(&rig, 0, replace).await;
        assert_eq!(winners.len(), 1, "exactly one replace wins");
        assert_eq!(rig.get(&key, 0).await.expect("there").value, winners[0].to_string());
    }
}

pub(super) async fn one_take_wins(rig: Rig) {
    for round in 0..ROUNDS {
        let key = rig.key(&format!("r{round}"));
        let record = rig.stored(&key, "v", 1_000).await;
        let takes = rig.together(TASKS, |rig, _| {
            let key = key.clone();
            async move { rig.take(&key, 0).await }
        });
        let got: Vec<Record> = takes.await.into_iter().flatten().collect();
        assert_eq!(got, [record], "exactly one take gets it");
    }
}

pub(super) async fn one_remove_wins(rig: Rig) {
    for round in 0..ROUNDS {
        let key = rig.key(&format!("r{round}"));
        let old = rig.stored(&key, "old", 1_000).await;
        let remove = |_: &Rig, _| Write::Remove { key: key.clone(), expected: old.version };
        assert_eq!(winners(&rig, 0, remove).await.len(), 1, "exactly one remove wins");
    }
}

pub(super) async fn a_take_and_a_replace_do_not_both_win(rig: Rig) {
    for round in 0..ROUNDS {
        let key = rig.key(&format!("r{round}"));
        let old = rig.stored(&key, "old", 1_000).await;
        let answers = rig.together(TASKS, |rig, index| {
            let key = key.clone();
            let record = rig.record("new", 1_000);
            async move {
                if index % 2 == 0 {
                    rig.take(&key, 0).await.is_some_and(|record| record.version == old.version)
                } else {
                    rig.applied(Write::Replace { key, expected: old.version, record }, 0).await
                }
            }
        });
        let won = answers.await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1, "the old version is consumed exactly once");
    }
}

pub(super) async fn crossing_batches_have_one_winner(rig: Rig) {
    for round in 0..ROUNDS {
        let keys =
            [rig.key(&format!("a{round}")), rig.key(&format!("b{round}")), rig.key(&format!("c{round}"))];
        let commits = rig.together(TASKS, |rig, index| {
            let mut inserts: Vec<_> = keys
                .iter()
                .map(|key| Write::Insert { key: key.clone(), record: rig.record(&index.to_string(), 1_000) })
                .collect();
            // Each task writes the same keys in another order, so that an engine that locks in the given order
            // deadlocks.
            inserts.rotate_left(index % 3);
            if index % 2 == 0 {
                inserts.reverse();
            }
            async move { rig.commit(inserts, 0).await }
        });
        let commits = commits.await;
        let winner = commits.iter().position(|commit| commit.is_applied()).expect("one wins");
        assert_eq!(commits.iter().filter(|commit| commit.is_applied()).count(), 1, "exactly one batch wins");
        for key in &keys {
            assert_eq!(rig.get(key, 0).await.expect("there").value, winner.to_string());
        }
    }
}

pub(super) async fn crossing_checks_do_not_both_win(rig: Rig) {
    // Each batch checks what the other replaces. In no order of the two do both conditions hold.
    for round in 0..ROUNDS {
        let keys = [rig.key(&format!("a{round}")), rig.key(&format!("b{round}"))];
        let versions =
            [rig.stored(&keys[0], "v", 1_000).await.version, rig.stored(&keys[1], "v", 1_000).await.version];
        let commits = rig.together(TASKS, |rig, index| {
            let (checked, replaced) = (index % 2, 1 - index % 2);
            let writes = vec![
                Write::Check { key: keys[checked].clone(), expected: versions[checked] },
                Write::Replace {
                    key: keys[replaced].clone(),
                    expected: versions[replaced],
                    record: rig.record("w", 1_000),
                },
            ];
            async move { rig.commit(writes, 0).await }
        });
        let applied = commits.await.into_iter().filter(|commit| commit.is_applied()).count();
        assert_eq!(applied, 1, "exactly one of the crossing batches wins");
    }
}

pub(super) async fn crossing_absences_do_not_both_win(rig: Rig) {
    // Each batch writes what the other requires to be absent.
    for round in 0..ROUNDS {
        let keys = [rig.key(&format!("a{round}")), rig.key(&format!("b{round}"))];
        let commits = rig.together(TASKS, |rig, index| {
            let writes = vec![
                Write::Absent { key: keys[index % 2].clone() },
                Write::Insert { key: keys[1 - index % 2].clone(), record: rig.record("w", 1_000) },
            ];
            async move { rig.commit(writes, 0).await }
        });
        let applied = commits.await.into_iter().filter(|commit| commit.is_applied()).count();
        assert_eq!(applied, 1, "exactly one of the crossing batches wins");
    }
}

pub(super) async fn an_inserted_tombstone_and_an_absence_check_do_not_cross(rig: Rig) {
    // The deletion of an owner lists the owner's records only after it has written its tombstone: every record that
    // was applied must be in that list.
    for round in 0..ROUNDS {
        let tombstone = rig.key(&format!("tombstone{round}"));
        let partition = format!("owned{round}");
        let answers = rig.together(TASKS, |rig, index| {
            let (tombstone, partition) = (tombstone.clone(), partition.clone());
            async move {
                if index == TASKS / 2 {
                    let record = rig.record("tombstone", 1_000);
                    assert!(rig.applied(Write::Insert { key: tombstone, record }, 0).await);
                    let owned = rig.scan(&rig.partition(&partition, &[]), 0).await;
                    return (None, owned.into_iter().map(|(key, _)| key).collect());
                }
                let key = rig.sorted_key(&partition, &[(index as u64).into()]);
                let writes = vec![
                    Write::Absent { key: tombstone },
                    Write::Insert { key: key.clone(), record: rig.record("owned", 1_000) },
                ];
                let applied = rig.commit(writes, 0).await.is_applied();
                (applied.then_some(key), Vec::new())
            }
        });
        let answers = answers.await;
        let listed: Vec<&Key> = answers.iter().flat_map(|(_, listed)| listed).collect();
        for applied in answers.iter().filter_map(|(applied, _)| applied.as_ref()) {
            assert!(listed.contains(&applied), "a record appeared behind the tombstone");
        }
    }
}

pub(super) async fn a_counter_loses_no_increment(rig: Rig) {
    const INCREMENTS: usize = 4;
    let key = rig.key("counter");
    rig.stored(&key, "0", 1_000).await;
    let tasks = rig.together(16, |rig, _| {
        let key = key.clone();
        async move {
            for _ in 0..INCREMENTS {
                loop {
                    let read = rig.get(&key, 0).await.expect("the counter is there");
                    let count: usize = String::from_utf8_lossy(&read.value).parse().expect("a number");
                    let record = rig.record(&(count + 1).to_string(), 1_000);
                    let replace = Write::Replace { key: key.clone(), expected: read.version, record };
                    if rig.applied(replace, 0).await {
                        break;
                    }
                }
            }
        }
    });
    tasks.await;
    assert_eq!(rig.get(&key, 0).await.expect("there").value, (16 * INCREMENTS).to_string());
}

pub(super) async fn readers_never_see_half_a_batch(rig: Rig) {
    // One partition, read by one scan: both records change together, so every reader sees them equal.
    let keys = [rig.sorted_key("pair", &["a".into()]), rig.sorted_key("pair", &["b".into()])];
    let put = |rig: &Rig, value: usize| -> Vec<Write> {
        let put = |key: &Key| Write::Put { key: key.clone(), record: rig.record(&value.to_string(), 1_000) };
        keys.iter().map(put).collect()
    };
    assert_eq!(rig.commit(put(&rig, 0), 0).await, Commit::Applied);
    let prefix = rig.partition("pair", &[]);
    let answers = rig.together(16, |rig, index| {
        let (batch, prefix) = (put(&rig, index + 1), prefix.clone());
        async move {
            if index % 4 == 0 {
                assert_eq!(rig.commit(batch, 0).await, Commit::Applied);
                return true;
            }
            let pair = rig.scan(&prefix, 0).await;
            pair.len() == 2 && pair[0].1.value == pair[1].1.value
        }
    });
    assert!(answers.await.into_iter().all(|whole| whole), "a reader saw half of a batch");
}
