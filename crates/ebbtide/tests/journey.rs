//! A copy from fjall to PostgreSQL to DynamoDB and back to fjall: what arrives is what left.
//!
//! `EBBTIDE_TEST_POSTGRES` and `EBBTIDE_TEST_DYNAMODB` name the servers; `EBBTIDE_TEST_DYNAMODB_SECOND`, where it is set,
//! is the quicker emulator, and taken instead. `EBBTIDE_TEST_JOURNEY` is how many records travel: 1,000 without it, and
//! 10,000 in `make test-all`, for the emulators take minutes for more.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::engines::dynamodb::DynamoDb;
use ebbtide::ops::transfer::Copier;
use ebbtide::{
    BackendExt as _, Batch, Key, Kind, Prefix, Reach, Record, Scope, SystemRng, Timestamp, Version, Write,
};
use libtest_mimic::{Arguments, Trial};

/// The kinds that travel: all but what a store keeps of itself, and the kit's.
const KINDS: [Kind; 8] = [
    Kind::Replay,
    Kind::Code,
    Kind::Grant,
    Kind::GrantIndex,
    Kind::AccessToken,
    Kind::Attribute,
    Kind::Approval,
    Kind::Relationship,
];

fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let dynamodb = variable("EBBTIDE_TEST_DYNAMODB_SECOND").or_else(|| variable("EBBTIDE_TEST_DYNAMODB"));
    let servers = variable("EBBTIDE_TEST_POSTGRES").zip(dynamodb);
    let records =
        variable("EBBTIDE_TEST_JOURNEY").map_or(1_000, |text| text.parse().expect("a number of records"));
    let name = "a_copy_through_three_engines_is_what_it_was";
    let trial = match servers {
        Some((postgres, dynamodb)) => Trial::test(name, move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
            runtime.block_on(journey(&postgres, &dynamodb, records));
            Ok(())
        }),
        None if std::env::var_os("CI").is_some() => {
            Trial::test(name, || Err("EBBTIDE_TEST_POSTGRES and EBBTIDE_TEST_DYNAMODB are not set".into()))
        }
        None => Trial::test(name, || Ok(())).with_ignored_flag(true),
    };
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).unwrap()
}

/// The record of that number: kinds, scopes, sizes and ends mixed; each ninth has expired.
fn item(number: u64) -> (Key, Record) {
    let scopes = ["global", "tenant:acme", "tenant:acme/env:prod", "custom:a/b", "tenant:acme%3Aenv%3Aprod"];
    let pick = |of: usize, stride: u64| usize::try_from(number / stride).unwrap() % of;
    let scope: Scope = scopes[pick(scopes.len(), 8)].parse().unwrap();
    let kind = KINDS[pick(KINDS.len(), 1)];
    let key = Key::new(kind, &scope, &[(number / 50).into()], &["é".into(), number.into()]).unwrap();
    let ends = match number % 9 {
        0 => now(),
        1 => Timestamp::NEVER,
        more => now().checked_add(Duration::from_millis(more * 86_400_000 + number)).unwrap(),
    };
    let byte = u8::try_from(number % 251).unwrap();
    (key, Record::new(vec![byte; pick(300, 3)], ends, &SystemRng))
}

async fn journey(postgres: &str, dynamodb: &str, records: u64) {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| format!("fjall:{}", dir.path().join(name).display());
    let schema = format!("journey_{}", Version::mint(&SystemRng));
    let on_postgres = format!("{postgres}?schema={schema}&sslmode=disable");
    ebbtide::engines::postgres::migrate(&on_postgres).await.unwrap();
    let on_dynamodb = format!("dynamodb:ebbtide-{schema}?endpoint={dynamodb}&region=us-east-1");
    DynamoDb::open(&on_dynamodb, SystemRng).await.unwrap().create_table().await.unwrap();

    let source = ebbtide::open_engine(&folder("source")).await.unwrap();
    let mut live = 0;
    for some in (0..records).collect::<Vec<_>>().chunks(100) {
        let items: Vec<_> = some.iter().map(|number| item(*number)).collect();
        live += items.iter().filter(|(_, record)| record.is_live(now())).count();
        let writes = items.into_iter().map(|(key, record)| Write::Put { key, record }).collect();
        assert!(source.commit(Batch::new(writes).unwrap(), now()).await.unwrap().is_applied());
    }
    let stops = [on_postgres, on_dynamodb, folder("target")];
    let mut from = Arc::clone(&source);
    for url in &stops {
        let to = ebbtide::open_engine(url).await.unwrap();
        let mut copier =
            Copier::new(Arc::clone(&from), Arc::clone(&to), &Reach::Below(Scope::Global), now()).unwrap();
        while copier.step().await.unwrap().is_some() {}
        let copied = copier.copied();
        assert!(copied.is_whole(), "{} to {}: {copied:?}", from.info().engine, to.info().engine);
        assert_eq!(
            copied.written.values().sum::<u64>(),
            live as u64,
            "{} to {}",
            from.info().engine,
            to.info().engine
        );
        from = to;
    }
    // Keys, values, versions and expiries, compared here and not by the copier.
    for kind in KINDS {
        let prefix = Prefix::kind_wide(kind);
        let left = source.scan_all(&prefix, now()).await.unwrap();
        let arrived = from.scan_all(&prefix, now()).await.unwrap();
        assert!(left == arrived, "records of the kind {kind} are not what they were");
        assert!(!arrived.is_empty(), "{kind}");
    }
}
