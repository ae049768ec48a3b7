//! Making a table, and looking at one.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use ebbtide::Admin as _;
use ebbtide::AdminExt as _;
use ebbtide::{Backend, BackendExt, ErrorKind, SystemRng, Version};

use crate::proxy::Act;
use crate::site::{Site, at, key, record};

crate::trials! {
    a_table_is_made_once_and_says_what_was_done
    a_table_without_ttl_is_a_warning_until_it_is_enabled
    a_role_that_may_not_read_the_ttl_setting_is_warned_and_serves
    a_table_with_other_keys_is_left_alone
    a_missing_table_is_no_answer
    stores_with_different_prefixes_share_a_table_and_nothing_else
}

fn name() -> String {
    format!("ebbtide-test-{}", Version::mint(&SystemRng))
}

async fn make(site: &Site, table: &str, names: [&str; 2], kind: ScalarAttributeType) {
    let mut request = site.client().create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    for (name, role) in names.into_iter().zip([KeyType::Hash, KeyType::Range]) {
        let key = KeySchemaElement::builder().attribute_name(name).key_type(role).build().unwrap();
        let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(kind.clone());
        request = request.key_schema(key).attribute_definitions(attribute.build().unwrap());
    }
    request.send().await.unwrap();
}

async fn a_table_is_made_once_and_says_what_was_done(site: &Site) {
    let table = name();
    let store = site.store(&format!("dynamodb:{table}")).await;
    assert_eq!(store.describe_table().await.unwrap(), None);

    let done = store.create_table().await.unwrap().join("\n");
    assert!(done.contains("created the table") && done.contains("turned TTL on"), "{done}");
    let description = store.describe_table().await.unwrap().unwrap();
    assert_eq!(description.status, "ACTIVE");
    assert!(description.is_fit && description.on_demand && description.ttl, "{description:?}");
    assert_ne!(description.point_in_time_recovery, Some(false), "on, where the endpoint has it");

    let again = store.create_table().await.unwrap().join("\n");
    assert!(again.contains("exists already") && again.contains("TTL is on already"), "{again}");
    assert_eq!(store.describe_table().await.unwrap(), Some(description));
    assert_eq!(store.warnings().await.unwrap(), [""; 0]);
    site.client().delete_table().table_name(table).send().await.unwrap();
}

async fn a_table_without_ttl_is_a_warning_until_it_is_enabled(site: &Site) {
    let table = name();
    make(site, &table, ["pk", "sk"], ScalarAttributeType::B).await;
    let store = site.store(&format!("dynamodb:{table}")).await;
    let warnings = store.warnings().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("TTL is not enabled"), "{warnings:?}");
    let sweeping = site.store(&format!("dynamodb:{table}?sweep=delete")).await;
    assert_eq!(sweeping.warnings().await.unwrap(), [""; 0], "who sweeps needs no TTL");
    store.enable_ttl().await.unwrap();
    assert_eq!(store.warnings().await.unwrap(), [""; 0]);
    site.client().delete_table().table_name(table).send().await.unwrap();
}

async fn a_role_that_may_not_read_the_ttl_setting_is_warned_and_serves(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    proxy.next("DescribeTimeToLive", Act::error("AccessDeniedException"));
    for _ in 0..2 {
        let warnings = store.warnings().await.unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("dynamodb:DescribeTimeToLive"), "{warnings:?}");
    }
    assert_eq!(proxy.requests("DescribeTimeToLive"), 1, "a refusal is kept for a minute");
    let (proxy, store, _) = site.proxied().await;
    for _ in 0..2 {
        assert_eq!(store.warnings().await.unwrap(), [""; 0]);
    }
    assert_eq!(proxy.requests("DescribeTimeToLive"), 1, "a table with TTL is not asked at each probe");
}

async fn a_table_with_other_keys_is_left_alone(site: &Site) {
    let table = name();
    make(site, &table, ["id", "sk"], ScalarAttributeType::S).await;
    let store = site.store(&format!("dynamodb:{table}")).await;
    assert!(!store.describe_table().await.unwrap().unwrap().is_fit);
    let error = store.create_table().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = store.insert(key("a"), record("v", 100), at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    site.client().delete_table().table_name(table).send().await.unwrap();
}

async fn a_missing_table_is_no_answer(site: &Site) {
    let store = site.store(&format!("dynamodb:{}", name())).await;
    let get = store.get(&key("a"), at(0)).await.unwrap_err();
    let insert = store.insert(key("a"), record("v", 100), at(0)).await.unwrap_err();
    for error in [get, insert] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("ebbtide table create"), "{error}");
    }
}

async fn stores_with_different_prefixes_share_a_table_and_nothing_else(site: &Site) {
    let table = site.table().await;
    let mut stores = Vec::new();
    let unique = name();
    for prefix in [format!("{unique}a"), format!("{unique}ab"), format!("{unique}b")] {
        let store = site.store(&format!("dynamodb:{table}?prefix={prefix}")).await;
        let mine = record(&prefix, 10);
        assert!(store.insert(key("same"), mine.clone(), at(0)).await.unwrap().is_applied(), "{prefix}");
        stores.push((store, mine));
    }
    let everything = ebbtide::Prefix::kind_wide(ebbtide::Kind::Probe);
    for (store, mine) in &stores {
        assert_eq!(store.scan_all(&everything, at(0)).await.unwrap(), [(key("same"), mine.clone())]);
        assert_eq!(store.stats(at(0)).await.unwrap()[&ebbtide::Kind::Probe].live, 1);
    }
    let budget = ebbtide::Budget::everything(ebbtide::Kind::PROBES);
    assert_eq!(stores[0].0.sweep_all(at(11), &budget).await.unwrap().total(), 1);
    assert_eq!(stores[1].0.erase_all(&everything, at(0)).await.unwrap(), 1);
    assert_eq!(stores[0].0.get(&key("same"), at(0)).await.unwrap(), None);
    assert_eq!(stores[1].0.get(&key("same"), at(0)).await.unwrap(), None);
    assert_eq!(stores[2].0.get(&key("same"), at(0)).await.unwrap(), Some(stores[2].1.clone()));
}
