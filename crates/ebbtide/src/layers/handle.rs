//! A shared handle on a backend is that backend, so that a layer can stand in front of it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::admin::Admin;
use crate::backend::Backend;
use crate::delegate;

#[async_trait]
impl Backend for Arc<dyn Admin> {
    delegate!(self => **self; get get_many take alter commit commit_each scan sweep info);
}

#[async_trait]
impl Admin for Arc<dyn Admin> {
    delegate!(self => **self; stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock
        warnings backup);
}
