//! Creation and inspection of a table: for operators, never on the serving path.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, PointInTimeRecoverySpecification,
    PointInTimeRecoveryStatus, ScalarAttributeType, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};

use super::DynamoDb;
use super::attempt::{AttemptFault, fault};
use super::item::{PK, SK, TTL};
use crate::model::error::{Error, Result};
use crate::model::time::Stopwatch;

use std::sync::PoisonError;
use std::time::Duration;

/// Timeout for a new table to become active.
const PATIENCE: Duration = Duration::from_secs(120);

/// Table as the endpoint describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Name of the table.
    pub table: String,
    /// `ACTIVE` if the table is usable.
    pub status: String,
    /// True if the table has the keys that this engine uses.
    pub is_fit: bool,
    /// True for on-demand billing.
    pub on_demand: bool,
    /// True if the engine's TTL is on, by the right attribute.
    pub ttl: bool,
    /// True if point-in-time recovery is on; `None` if the endpoint does not support it.
    pub point_in_time_recovery: Option<bool>,
    /// Approximate number of items, some hours old.
    pub items: u64,
    /// Approximate size in bytes, some hours old.
    pub bytes: u64,
}

/// Actions taken, one line each, in order.
pub type Done = Vec<String>;

/// Last answer about the engine's TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenTtl {
    On,
    Off,
    /// The endpoint did not tell: it refused, or failed.
    Unknown,
}

impl SeenTtl {
    /// Time for which the answer is not asked for again. One that an operator is about to change is not kept.
    fn kept(self) -> Duration {
        Duration::from_secs(match self {
            Self::On => 600,
            Self::Unknown => 60,
            Self::Off => 0,
        })
    }

    fn warnings(self) -> Vec<String> {
        let warning = match self {
            Self::On => return Vec::new(),
            Self::Off => {
                "TTL is not enabled on the table, so expired items stay and are billed; run \
                 `ebbtide table enable-ttl`"
            }
            Self::Unknown => {
                "cannot read the TTL setting of the table; the role needs dynamodb:DescribeTimeToLive"
            }
        };
        vec![warning.to_owned()]
    }
}

impl DynamoDb {
    /// Creates the table unless it exists: on-demand, with TTL, and with point-in-time recovery if the endpoint
    /// supports it. Existing settings are left unchanged and reported.
    pub async fn create_table(&self) -> Result<Done> {
        let mut done = Vec::new();
        if let Some(description) = self.find_table().await? {
            if !description.is_fit {
                return Err(Error::invalid(
                    "a table of that name exists with other keys; Ebbtide needs pk and sk, both binary",
                ));
            }
            done.push(format!("the table {} exists already", self.table));
        } else {
            self.make_table().await?;
            done.push(format!("created the table {} with on-demand billing", self.table));
        }
        self.wait_until_active().await?;
        done.extend(self.enable_ttl().await?);
        done.push(self.enable_recovery().await?);
        Ok(done)
    }

    /// Turns the engine's TTL on, unless it is on.
    pub async fn enable_ttl(&self) -> Result<Done> {
        match self.ttl_attribute().await? {
            Some(attribute) if attribute == TTL => Ok(vec![format!("TTL is on already, by {TTL}")]),
            Some(_) => Err(Error::invalid(
                "TTL is on by another attribute; turn that off first, which takes the engine an hour",
            )),
            None => {
                let wanted = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build();
                let wanted = wanted.map_err(incomplete)?;
                let send = || async {
                    let request = self.client.update_time_to_live().table_name(&self.table);
                    request.time_to_live_specification(wanted.clone()).send().await.map_err(fault)
                };
                self.patience.repeat(send).await?;
                Ok(vec![format!("turned TTL on, by {TTL}; the engine may take an hour to begin")])
            }
        }
    }

    /// Describes the table; `None` if it does not exist.
    pub async fn describe_table(&self) -> Result<Option<Description>> {
        let Some(mut description) = self.find_table().await? else { return Ok(None) };
        description.ttl = self.ttl_attribute().await?.as_deref() == Some(TTL);
        description.point_in_time_recovery = self.recovery().await?;
        Ok(Some(description))
    }

    /// Warnings about the table, for an operator. A role that serves needs no permission to read the setting, so a
    /// failure is a warning too. The request is sent once: a caller asks again.
    pub(super) async fn table_warnings(&self) -> Vec<String> {
        if self.sweeps {
            return Vec::new();
        }
        if let Some((asked, seen)) = *self.ttl_seen.lock().unwrap_or_else(PoisonError::into_inner)
            && asked.elapsed() < seen.kept()
        {
            return seen.warnings();
        }
        let seen = match self.send_ttl().await {
            Ok(attribute) if attribute.as_deref() == Some(TTL) => SeenTtl::On,
            Ok(_) => SeenTtl::Off,
            Err(_) => SeenTtl::Unknown,
        };
        *self.ttl_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Stopwatch::start(), seen));
        seen.warnings()
    }

    async fn find_table(&self) -> Result<Option<Description>> {
        self.patience.repeat(|| self.send_find_table()).await
    }

    pub(super) async fn send_find_table(&self) -> Result<Option<Description>, AttemptFault> {
        let table = match self.client.describe_table().table_name(&self.table).send().await {
            Ok(output) => output.table,
            Err(SdkError::ServiceError(error)) if error.err().is_resource_not_found_exception() => None,
            Err(error) => return Err(fault(error)),
        };
        let Some(table) = table else { return Ok(None) };
        let has = |name: &str, role: &KeyType| {
            let in_keys = |key: &KeySchemaElement| key.attribute_name == name && key.key_type == *role;
            let is_binary = |attribute: &AttributeDefinition| {
                attribute.attribute_name == name && attribute.attribute_type == ScalarAttributeType::B
            };
            table.key_schema().iter().any(in_keys) && table.attribute_definitions().iter().any(is_binary)
        };
        let billing = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
        let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        Ok(Some(Description {
            table: self.table.clone(),
            status: table.table_status().map_or("unknown", TableStatus::as_str).to_owned(),
            is_fit: table.key_schema().len() == 2 && has(PK, &KeyType::Hash) && has(SK, &KeyType::Range),
            on_demand: billing == Some(&BillingMode::PayPerRequest),
            ttl: false,
            point_in_time_recovery: None,
            items: count(table.item_count()),
            bytes: count(table.table_size_bytes()),
        }))
    }

    async fn make_table(&self) -> Result<()> {
        let mut request =
            self.client.create_table().table_name(&self.table).billing_mode(BillingMode::PayPerRequest);
        for (name, role) in [(PK, KeyType::Hash), (SK, KeyType::Range)] {
            let key = KeySchemaElement::builder().attribute_name(name).key_type(role).build();
            let attribute = AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::B)
                .build();
            request = request
                .key_schema(key.map_err(incomplete)?)
                .attribute_definitions(attribute.map_err(incomplete)?);
        }
        let send = || async {
            match request.clone().send().await {
                Ok(_) => Ok(()),
                // Another process, or an attempt whose answer was lost, has created it.
                Err(SdkError::ServiceError(error)) if error.err().is_resource_in_use_exception() => Ok(()),
                Err(error) => Err(fault(error)),
            }
        };
        self.patience.repeat(send).await
    }

    async fn wait_until_active(&self) -> Result<()> {
        let stopwatch = Stopwatch::start();
        while stopwatch.elapsed() < PATIENCE {
            let table = self.find_table().await?;
            if table.is_some_and(|table| table.status == TableStatus::Active.as_str()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Err(Error::unavailable("the table was created but is not active after two minutes; retry"))
    }

    /// Attribute that the engine's TTL uses; `None` if TTL is off.
    async fn ttl_attribute(&self) -> Result<Option<String>> {
        self.patience.repeat(|| self.send_ttl()).await
    }

    async fn send_ttl(&self) -> Result<Option<String>, AttemptFault> {
        let request = self.client.describe_time_to_live().table_name(&self.table);
        let description = request.send().await.map_err(fault)?.time_to_live_description;
        let on = |status: Option<&TimeToLiveStatus>| {
            matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
        };
        let description = description.filter(|description| on(description.time_to_live_status()));
        Ok(description.and_then(|description| description.attribute_name))
    }

    async fn enable_recovery(&self) -> Result<String> {
        match self.recovery().await? {
            None => return Ok("the endpoint has no point-in-time recovery".to_owned()),
            Some(true) => return Ok("point-in-time recovery is on already".to_owned()),
            Some(false) => {}
        }
        let wanted = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
        let wanted = wanted.map_err(incomplete)?;
        let send = || async {
            let request = self.client.update_continuous_backups().table_name(&self.table);
            let answer = request.point_in_time_recovery_specification(wanted.clone()).send().await;
            answer.map(|_| true).or_else(unknown_operation)
        };
        Ok(if self.patience.repeat(send).await? {
            "turned point-in-time recovery on".to_owned()
        } else {
            "the endpoint has no point-in-time recovery".to_owned()
        })
    }

    async fn recovery(&self) -> Result<Option<bool>> {
        let send = || async {
            match self.client.describe_continuous_backups().table_name(&self.table).send().await {
                Ok(output) => Ok(output.continuous_backups_description),
                Err(error) => unknown_operation(error).map(|_| None),
            }
        };
        let recovery = self.patience.repeat(send).await?;
        let recovery = recovery.and_then(|backups| backups.point_in_time_recovery_description);
        let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status);
        Ok(status.map(|status| status == PointInTimeRecoveryStatus::Enabled))
    }
}

/// Returns false for an operation that the endpoint does not support.
fn unknown_operation<E>(
    error: SdkError<E, aws_smithy_runtime_api::client::orchestrator::HttpResponse>,
) -> Result<bool, AttemptFault>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    if matches!(code, Some("UnknownOperationException" | "InvalidAction" | "NotImplemented")) {
        return Ok(false);
    }
    Err(fault(error))
}

fn incomplete(error: aws_sdk_dynamodb::error::BuildError) -> Error {
    Error::invalid("cannot build a request about the table").caused_by(error)
}
