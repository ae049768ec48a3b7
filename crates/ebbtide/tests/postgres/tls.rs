//! TLS as the URL asks for it.

use ebbtide::ErrorKind;

use crate::service::{at, cases, key, migrated, open_at, put, record, schema_of, server};

cases! {
    tls_is_used_where_the_url_requires_it
    the_authority_and_the_host_are_verified_where_the_url_says_so
    a_user_that_must_encrypt_can
}

/// The authority that the server's certificate is of. It is for `localhost` alone.
fn authority() -> String {
    std::env::var("EBBTIDE_TEST_POSTGRES_CA")
        .expect("EBBTIDE_TEST_POSTGRES_CA says where it is: scripts/test")
}

async fn tls_is_used_where_the_url_requires_it() {
    let url = migrated().await;
    for (mode, expected) in [("disable", false), ("prefer", true), ("require", true)] {
        let name = format!("tls_{mode}_{}", std::process::id());
        let store = open_at(&format!("{url}&sslmode={mode}&application_name={name}")).await;
        put(&store, key("a"), record("v", 10)).await;
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE application_name = $1";
        let row = crate::service::connect(&server()).await.query_one(sql, &[&name]).await.unwrap();
        assert_eq!(row.get::<_, Option<bool>>(0), Some(expected), "{mode}");
    }
}

async fn the_authority_and_the_host_are_verified_where_the_url_says_so() {
    let url = migrated().await;
    let by_name = url.replace("127.0.0.1", "localhost");
    let ca = authority();
    for good in [
        format!("{by_name}&sslmode=verify-full&sslrootcert={ca}"),
        format!("{by_name}&sslmode=verify-ca&sslrootcert={ca}"),
        format!("{url}&sslmode=verify-ca&sslrootcert={ca}"),
    ] {
        put(&open_at(&good).await, key("a"), record("v", 10)).await;
    }
    for bad in [
        // The certificate is not for this host.
        format!("{url}&sslmode=verify-full&sslrootcert={ca}"),
        // Nobody whom the system knows has signed it.
        format!("{by_name}&sslmode=verify-full"),
        format!("{by_name}&sslmode=verify-ca"),
    ] {
        let error = ebbtide::open_engine(&bad).await.err().expect("it does not open");
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Invalid), "{error:?}");
    }
    let missing = format!("{by_name}&sslmode=verify-full&sslrootcert=/nowhere.pem");
    assert_eq!(ebbtide::open_engine(&missing).await.err().unwrap().kind(), ErrorKind::Invalid);
}

async fn a_user_that_must_encrypt_can() {
    // All of the kit's own traffic is by TLS already: `prefer` takes it where the server has it.
    let url = migrated().await;
    let schema = schema_of(&url);
    let store = open_at(&format!("{url}&sslmode=require&pool=2")).await;
    let large = record(&schema.repeat(10_000), 10);
    put(&store, key("large"), large.clone()).await;
    assert!(store.get(&key("large"), at(0)).await.unwrap() == Some(large));
}
