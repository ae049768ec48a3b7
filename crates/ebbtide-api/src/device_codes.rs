//! Answers of `/v1/device-codes`.

use ebbtide::stores::device_codes::StartedDevice;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;
use crate::tokens::Audience;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceStarted {
    pub device_code: String,
    #[schema(example = "WDJB-MJHT")]
    pub user_code: String,
    pub interval: u64,
    pub expires_at: Option<u64>,
}

impl From<StartedDevice> for DeviceStarted {
    fn from(started: StartedDevice) -> Self {
        Self {
            device_code: started.device_code.expose().to_owned(),
            user_code: started.user_code.expose().to_owned(),
            interval: started.interval_seconds,
            expires_at: millis(started.expires_at),
        }
    }
}

/// Client, scope and state behind a user code.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceInspected {
    pub client_id: String,
    pub scope: Option<String>,
    /// Resources that its access tokens are meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    pub expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceDecided {
    /// `approved` or `denied`.
    #[schema(example = "approved")]
    pub outcome: String,
    pub client_id: String,
    pub scope: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceApproved {
    #[schema(example = "approved")]
    pub outcome: String,
    pub subject: String,
    pub client_id: String,
    pub scope: Option<String>,
}
