//! The schema: made once, checked at every start, and named in every statement.

use ebbtide::AdminExt as _;
use ebbtide::engines::postgres::migrate;
use ebbtide::{BackendExt, Budget, ErrorKind, Kind, Prefix, Write};

use crate::service::{
    at, cases, connect, fresh, key, migrated, open_at, put, record, schema_of, server, sql,
};

cases! {
    a_store_without_a_schema_is_refused_and_the_command_named
    a_newer_schema_is_refused
    a_newer_schema_that_fits_older_builds_is_served
    a_schema_that_says_nothing_of_older_builds_fits_its_own_alone
    an_older_schema_is_refused_and_the_command_named
    a_migration_is_done_once_by_many_at_once
    rows_of_the_version_before_are_swept_at_their_time
    every_statement_honours_schema_and_prefix
    a_missing_server_is_unavailable_and_not_named
    a_server_that_defaults_to_weak_settings_is_told_otherwise
    plans_made_while_a_table_was_empty_do_not_read_all_of_it_later
}

async fn refused(url: &str) -> ebbtide::Error {
    let error = ebbtide::open_engine(url).await.err().expect("it does not open");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error
}

async fn a_store_without_a_schema_is_refused_and_the_command_named() {
    let error = refused(&fresh().await).await;
    assert!(error.message().contains("ebbtide migrate-schema --store"), "{error}");
}

async fn a_newer_schema_is_refused() {
    let url = migrated().await;
    let meta = format!("{}.meta", schema_of(&url));
    sql(&server(), &format!("UPDATE {meta} SET value = 99 WHERE name = 'schema_version'")).await;
    sql(&server(), &format!("UPDATE {meta} SET value = 98 WHERE name = 'min_compatible'")).await;
    assert!(refused(&url).await.message().contains("99"));
    assert!(migrate(&url).await.unwrap_err().message().contains("newer build"), "and not migrated backwards");
}

/// A schema of the next release, which nodes of this one serve: with one more table, and a column with a default.
async fn a_newer_schema_that_fits_older_builds_is_served() {
    let url = migrated().await;
    let (running, schema) = (open_at(&url).await, schema_of(&url));
    put(&running, key("a"), record("v", 10)).await;
    let expand = format!(
        "BEGIN; CREATE TABLE {schema}.of_tomorrow (key bytea PRIMARY KEY); \
         ALTER TABLE {schema}.probes ADD COLUMN extra bigint NOT NULL DEFAULT 0; \
         UPDATE {schema}.meta SET value = 4 WHERE name = 'schema_version'; COMMIT"
    );
    sql(&server(), &expand).await;
    let restarted = open_at(&url).await;
    for (store, name) in [(&running, "b"), (&restarted, "c")] {
        assert!(store.insert(key(name), record("v", 10), at(0)).await.unwrap().is_applied());
        assert!(store.get(&key("a"), at(0)).await.unwrap().is_some());
        put(store, key(name), record("w", 10)).await;
    }
    let migrated = migrate(&url).await.unwrap();
    assert_eq!((migrated.from, migrated.to), (4, 4), "it is left as it is");
}

async fn a_schema_that_says_nothing_of_older_builds_fits_its_own_alone() {
    let url = migrated().await;
    let meta = format!("{}.meta", schema_of(&url));
    sql(&server(), &format!("DELETE FROM {meta} WHERE name = 'min_compatible'")).await;
    open_at(&url).await;
    sql(&server(), &format!("UPDATE {meta} SET value = 4 WHERE name = 'schema_version'")).await;
    refused(&url).await;
}

async fn an_older_schema_is_refused_and_the_command_named() {
    let url = migrated().await;
    let meta = format!("{}.meta", schema_of(&url));
    sql(&server(), &format!("UPDATE {meta} SET value = 0 WHERE name = 'schema_version'")).await;
    assert!(refused(&url).await.message().contains("ebbtide migrate-schema --store"));
}

async fn a_migration_is_done_once_by_many_at_once() {
    let url = fresh().await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { migrate(&url).await.unwrap() })
        })
        .collect();
    let mut from_nothing = 0;
    for task in tasks {
        let migrated = task.await.unwrap();
        from_nothing += usize::from(migrated.from == 0);
    }
    assert_eq!(from_nothing, 1);
    put(&open_at(&url).await, key("a"), record("v", 10)).await;
}

/// Version 2 had an index on the expiry. Nodes of it go on writing while the store is migrated, and after.
async fn rows_of_the_version_before_are_swept_at_their_time() {
    let url = migrated().await;
    let schema = schema_of(&url);
    let back = format!(
        "DO $$ DECLARE name text; BEGIN \
         FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'meta' LOOP \
         EXECUTE format('ALTER TABLE {schema}.%I DROP COLUMN due_at', name); \
         EXECUTE format('CREATE INDEX %I ON {schema}.%I (expires_at)', name || '_expiry', name); \
         END LOOP; END $$; UPDATE {schema}.meta SET value = 2 WHERE name = 'schema_version'"
    );
    sql(&server(), &back).await;
    assert!(refused(&url).await.message().contains("ebbtide migrate-schema --store"));
    let insert = |names: &str, expires_at: u64| {
        format!(
            "INSERT INTO {schema}.probes (key, value, version, expires_at, written_at) \
             SELECT decode(md5(name), 'hex'), '', '', {expires_at}, 0 FROM unnest('{{{names}}}'::text[]) AS name"
        )
    };
    sql(&server(), &insert("a,b", 10)).await;
    sql(&server(), &insert("c", 1_000)).await;
    // A large table and a small one, and what a migration that was interrupted has left of each: a column, an index that
    // was not finished.
    let left = format!(
        "INSERT INTO {schema}.grants (key, value, version, expires_at, written_at) \
         SELECT decode(md5(n::text), 'hex'), decode(repeat('00', 100), 'hex'), '', 9000, 0 FROM generate_series(1, 10000) AS n"
    );
    sql(&server(), &left).await;
    for table in ["grants", "codes"] {
        let left = format!(
            "ALTER TABLE {schema}.{table} ADD COLUMN due_at bigint NOT NULL DEFAULT 0; \
             CREATE INDEX {table}_due ON {schema}.{table} (due_at); \
             UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{schema}.{table}_due'::regclass"
        );
        sql(&server(), &left).await;
    }
    let migrated = migrate(&url).await.unwrap();
    assert_eq!((migrated.from, migrated.to), (2, 3));
    for table in ["grants", "codes"] {
        let indexes = format!(
            "SELECT string_agg(c.relname::text, ',' ORDER BY c.relname), bool_and(i.indisvalid) FROM pg_index AS i \
             JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = '{schema}.{table}'::regclass"
        );
        let row = connect(&server()).await.query_one(&indexes, &[]).await.unwrap();
        let there = format!("{table}_due,{table}_pkey");
        assert_eq!((row.get::<_, String>(0), row.get::<_, bool>(1)), (there, true));
    }
    let store = open_at(&url).await;
    sql(&server(), &insert("d", 10)).await;
    sql(&server(), &insert("e", 1_000)).await;
    let prolong = format!("UPDATE {schema}.probes SET expires_at = 500 WHERE key = decode(md5('b'), 'hex')");
    sql(&server(), &prolong).await;
    for (until, removed) in [(11, 2), (11, 0), (501, 1), (1_000, 0), (1_001, 2)] {
        let stats = store.stats(at(until - 1)).await.unwrap().get(&Kind::Probe).copied().unwrap_or_default();
        assert_eq!(stats.expired, removed, "up to {until}");
        assert_eq!(store.sweep_all(at(until), &Budget::default()).await.unwrap().total(), removed, "{until}");
    }
}

async fn every_statement_honours_schema_and_prefix() {
    // Two stores in one schema, and a user whose search path leads elsewhere.
    let plain = migrated().await;
    let prefixed = format!("{plain}&prefix=other_");
    migrate(&prefixed).await.unwrap();
    let stores = [open_at(&plain).await, open_at(&prefixed).await];
    for (store, value) in stores.iter().zip(["plain", "other"]) {
        for name in ["a", "b"] {
            assert!(store.insert(key(name), record(value, 10), at(0)).await.unwrap().is_applied());
        }
        let batch =
            vec![Write::Put { key: key("c"), record: record(value, 10) }, Write::Absent { key: key("d") }];
        assert!(store.commit(ebbtide::Batch::new(batch).unwrap(), at(0)).await.unwrap().is_applied());
    }
    let [first, second] = &stores;
    assert_eq!(first.sweep_all(at(11), &Budget::default()).await.unwrap().total(), 3);
    let left = second.scan_all(&Prefix::kind_wide(Kind::Probe), at(0)).await.unwrap();
    assert_eq!(left.len(), 3, "the other store's sweep and scan are its own");
    assert!(left.iter().all(|(_, record)| record.value == "other"));
    assert_eq!(second.stats(at(0)).await.unwrap()[&Kind::Probe].live, 3);
    assert!(first.stats(at(0)).await.unwrap().is_empty());
    assert_eq!(second.erase_all(&Prefix::kind_wide(Kind::Probe), at(0)).await.unwrap(), 3);
    let public = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let count: i64 = connect(&server()).await.query_one(public, &[]).await.unwrap().get(0);
    assert_eq!(count, 0, "nothing of ours is in public");
}

async fn a_missing_server_is_unavailable_and_not_named() {
    let url = "postgres://someone:hunter2@127.0.0.1:1/db";
    let error = ebbtide::open_engine(url).await.err().expect("it does not open");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!format!("{error:?}").contains("hunter2"));
}

async fn a_server_that_defaults_to_weak_settings_is_told_otherwise() {
    // As a database or role may be set up: every write answered before it is durable, and another isolation.
    let weak = "-c%20synchronous_commit%3Doff%20-c%20default_transaction_isolation%3Dserializable";
    let url = format!("{}&options={weak}", migrated().await);
    let store = open_at(&url).await;
    let schema = schema_of(&url);
    // A rule of the table reports the session's settings from inside a statement of the engine.
    let report = format!(
        "CREATE TABLE {schema}.seen (setting text); \
         CREATE FUNCTION {schema}.report() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')), \
         (current_setting('transaction_isolation')); RETURN NEW; END $$; \
         CREATE TRIGGER report BEFORE INSERT ON {schema}.probes FOR EACH ROW \
         EXECUTE FUNCTION {schema}.report()"
    );
    sql(&server(), &report).await;
    put(&store, key("a"), record("v", 10)).await;
    let batch = ["b", "c"].map(|name| Write::Put { key: key(name), record: record("v", 10) }).to_vec();
    assert!(store.commit(ebbtide::Batch::new(batch).unwrap(), at(0)).await.unwrap().is_applied());
    let seen = format!("SELECT DISTINCT setting FROM {schema}.seen ORDER BY setting");
    let rows = connect(&server()).await.query(&seen, &[]).await.unwrap();
    let settings: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(settings, ["on", "read committed"]);
}

async fn plans_made_while_a_table_was_empty_do_not_read_all_of_it_later() {
    let url = migrated().await;
    let store = open_at(&format!("{url}&pool=1")).await;
    let batch = |round: usize| {
        let writes = (0..3)
            .map(|n| Write::Insert { key: key(&format!("{round}-{n}")), record: record("v", 1_000) })
            .chain([Write::Absent { key: key("tombstone") }]);
        ebbtide::Batch::new(writes.collect()).unwrap()
    };
    let prefix = Prefix::kind_wide(Kind::Probe);
    // Often enough that the server settles on its plans.
    for round in 0..20 {
        let _ = store.insert(key(&round.to_string()), record("v", 1_000), at(0)).await.unwrap();
        assert!(store.commit(batch(round), at(0)).await.unwrap().is_applied());
        store.scan(&prefix, None, 1, at(0)).await.unwrap();
        store.sweep(at(1), &Budget::everything(&[Kind::Probe])).await.unwrap();
    }
    let client = connect(&server()).await;
    let schema = schema_of(&url);
    let grow = format!(
        "INSERT INTO {schema}.probes SELECT decode(md5(n::text), 'hex'), '', '', 1000 + n, 0 \
         FROM generate_series(1, 50000) AS n"
    );
    client.batch_execute(&grow).await.unwrap();
    for round in 20..30 {
        let _ = store.insert(key(&round.to_string()), record("v", 1_000), at(0)).await.unwrap();
        assert!(store.commit(batch(round), at(0)).await.unwrap().is_applied());
        store.sweep(at(1), &Budget::everything(&[Kind::Probe])).await.unwrap();
    }
    drop(store);
    let scans = "SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = $1 \
                 AND relname = 'probes'";
    let row = client.query_one(scans, &[&schema]).await.unwrap();
    let read: i64 = row.get(1);
    assert_eq!(read, 0, "no statement reads the whole table");
}
