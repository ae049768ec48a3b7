//! A hundred thousand approvals, and a graph of a hundred thousand edges.

use anyhow::Result;
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::{Scope, Stores, Ttl};
use tokio::task::JoinSet;

use crate::context::Context;

const MEMBER: &str = "member";

/// Number of members in each level: everyone belongs to a team, a team to a group, and so on.
const LEVELS: [u64; 5] = [60_000, 20_000, 11_000, 8_000, 1_000];

/// Number of nodes above the last level.
const TOP: u64 = 100;

#[derive(Clone, Copy)]
pub(super) struct Graph {
    pub(super) approvals: u64,
    sizes: [u64; LEVELS.len()],
}

impl Graph {
    pub(super) fn new(context: &Context) -> Self {
        Self { approvals: context.scaled(100_000), sizes: LEVELS.map(|size| context.scaled(size)) }
    }

    pub(super) fn scope() -> Result<Scope> {
        Ok(Scope::tenant_env("acme", "prod")?)
    }

    pub(super) fn edges(&self) -> u64 {
        self.sizes.iter().sum()
    }

    fn size(&self, level: usize) -> u64 {
        self.sizes.get(level).copied().unwrap_or(TOP)
    }

    /// Identity and resource of an approval.
    pub(super) fn approval(&self, number: u64) -> (String, String) {
        let number = number % self.approvals;
        (format!("user{number}"), format!("/doc/{}", number % 1_000))
    }

    /// Edge from a member to its ancestor, `hops` levels up.
    pub(super) fn up(&self, number: u64, hops: usize) -> Edge {
        let start = number % self.size(0);
        let end = (1..=hops).fold(start, |at, level| at % self.size(level));
        Edge::new(name(0, start), MEMBER, name(hops, end), RelationType::Membership)
    }

    pub(super) async fn fill(self, stores: &Stores) -> Result<()> {
        let mut tasks = JoinSet::new();
        for part in 0..64 {
            tasks.spawn(self.fill_part(stores.clone(), part));
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        Ok(())
    }

    /// Writes one of 64 parts.
    async fn fill_part(self, stores: Stores, part: u64) -> Result<()> {
        let (scope, ttl) = (Self::scope()?, Ttl::from_secs(86_400)?);
        for number in (part..self.approvals).step_by(64) {
            let (user, resource) = self.approval(number);
            let approval = Approval::new(user, resource, "read", "admin").ttl(ttl);
            stores.approvals(&scope).grant(&approval).await?;
        }
        for level in 0..self.sizes.len() {
            for number in (part..self.size(level)).step_by(64) {
                let group = name(level + 1, number % self.size(level + 1));
                let edge = Relationship::membership(name(level, number), MEMBER, group, "admin").ttl(ttl);
                stores.relationships(&scope).add(&edge).await?;
            }
        }
        Ok(())
    }
}

/// Name of a member of a level.
fn name(level: usize, number: u64) -> String {
    format!("level{level}:{number}")
}
