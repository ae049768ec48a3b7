//! State of one connection: who speaks, the version of the protocol, and an open transaction.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ebbtide::stores::api_keys::Role;
use ebbtide::stores::records::Records;
use ebbtide::{Scope, Stopwatch};

use super::codec::Bounds;
use super::data::{Data, Effect};
use super::group::{Group, Slot};
use super::meters::Meters;
use super::parse::{data, wrong_arity};
use super::refusals::{no_auth, unknown};
use super::reply::{Protocol, Reply};
use super::run::{run_alone, run_each};
use super::specs::{Need, Spec, find};
use super::transaction::{Watched, execute, watch};
use crate::app::App;
use crate::http::auth::{Caller, Presented};
use crate::http::limits::Place;
use crate::http::share::{Share, Taken};

/// Bytes of replies beyond which no further command is begun before they are sent.
const MAX_REPLIES_BYTES: usize = 256 * 1_024;

/// Bytes of replies that are not counted as memory of the key.
const UNCOUNTED_BYTES: usize = 16 * 1_024;

/// Most commands of a transaction.
const MAX_QUEUED: usize = 1_000;

/// State of one connection.
pub(super) struct Session {
    pub(super) app: App,
    meters: Arc<Meters>,
    /// Number of the connection, for `CLIENT ID`.
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    pub(super) name: Bytes,
    pub(super) login: Option<Login>,
    /// Fault at the last look at the key, which every command is refused with.
    fault: Option<Reply>,
    queue: Option<Queue>,
    watched: Vec<Watched>,
    /// Memory of replies that are not sent yet.
    pub(super) unsent: Vec<Taken>,
    /// True once the connection is to be closed.
    pub(super) closing: bool,
}

/// Key that was presented, and its scope.
pub(super) struct Login {
    presented: Presented,
    pub(super) user: String,
    caller: Caller,
    pub(super) records: Records,
}

impl Login {
    /// Share of the caller in the node.
    pub(super) fn share(&self) -> &Arc<Share> {
        &self.caller.share
    }
}

/// Places that are held while commands run.
pub(super) struct Turn<'a> {
    _own: Taken,
    _place: Place<'a>,
}

/// Commands behind `MULTI`.
#[derive(Default)]
struct Queue {
    commands: Vec<Queued>,
    bytes: usize,
    /// True if a command was refused: `EXEC` then runs nothing.
    dirty: bool,
}

enum Queued {
    Data(&'static Spec, Data),
    Reply(Reply),
}

impl Session {
    pub(super) fn new(app: App, meters: Arc<Meters>, id: u64) -> Self {
        Self {
            app,
            meters,
            id,
            protocol: Protocol::Resp2,
            name: Bytes::new(),
            login: None,
            fault: None,
            queue: None,
            watched: Vec::new(),
            unsent: Vec::new(),
            closing: false,
        }
    }

    /// Bounds of the next request.
    pub(super) fn bounds(&self) -> Bounds {
        if self.login.is_some() {
            Bounds::of(self.app.edge.limits.body_bytes)
        } else {
            Bounds::UNAUTHENTICATED
        }
    }

    /// Runs requests in order, and appends their replies to `out`. It leaves some of them if the replies are many: they
    /// are to be sent first, so that a client that reads slowly costs little memory.
    pub(super) async fn process(&mut self, requests: &mut VecDeque<Vec<Bytes>>, out: &mut BytesMut) {
        self.look_at_key().await;
        let is_single = requests.len() == 1;
        let mut group = Group::default();
        while !self.closing && out.len() < MAX_REPLIES_BYTES {
            let Some(args) = requests.pop_front() else { break };
            let reply = match self.parse(&args).await {
                Err(refused) => {
                    self.spoil();
                    refused
                }
                // As in Redis, an argument that is wrong is told when the transaction runs, and spoils nothing else.
                Ok((spec, Err(refused))) if self.queue.is_some() => {
                    let size = refused.size();
                    self.push(spec, Queued::Reply(refused), size)
                }
                Ok((_, Err(refused))) => refused,
                // Most clients send one command and wait: it needs no group.
                Ok((spec, Ok(Some(data)))) if self.queue.is_none() && is_single => {
                    let mut replies = [self.run_single(spec, &data).await];
                    self.hold_replies(&[(spec, data)], &mut replies);
                    let [reply] = replies;
                    reply
                }
                Ok((spec, Ok(Some(data)))) if self.queue.is_none() => {
                    if group.must_wait(&data) {
                        self.flush(&mut group, out).await;
                    }
                    group.add(spec, data);
                    continue;
                }
                Ok((spec, Ok(Some(data)))) => self.enqueue(spec, data, &args),
                Ok((spec, Ok(None))) => {
                    // Everything before takes effect first.
                    self.flush(&mut group, out).await;
                    let reply = self.control_or_queue(spec, &args).await;
                    self.meters.count(spec, &reply);
                    reply
                }
            };
            if is_single {
                return reply.encode(self.protocol, out);
            }
            group.slots.push(Slot::Ready(reply));
        }
        self.flush(&mut group, out).await;
    }

    /// Command that the caller may run, and its data where it is one on keys; each error is the reply.
    async fn parse(&mut self, args: &[Bytes]) -> Result<(&'static Spec, Result<Option<Data>, Reply>), Reply> {
        let Some(spec) = find(&args[0]) else {
            // A stranger does not learn what there is.
            self.check_login()?;
            return Err(unknown(&args[0]));
        };
        let counted = |refused: &Reply| self.meters.count(spec, refused);
        let admitted = match self.admit(spec).await {
            Ok(()) if spec.fits(args.len()) => Ok(()),
            Ok(()) => Err(wrong_arity(spec.name)),
            Err(refused) => Err(refused),
        };
        admitted.inspect_err(counted)?;
        Ok((spec, data(spec, args).inspect_err(counted)))
    }

    /// Runs the commands of the group together, and appends the replies in order.
    async fn flush(&mut self, group: &mut Group, out: &mut BytesMut) {
        let Group { slots, runs } = std::mem::take(group);
        let mut replies = self.run_together(&runs).await;
        self.hold_replies(&runs, &mut replies);
        if runs.len() >= Group::MAX_TOGETHER {
            // Long pipelines let the other connections of the thread go on, also where nothing has to wait.
            tokio::task::yield_now().await;
        }
        for slot in slots {
            match slot {
                Slot::Ready(reply) => reply.encode(self.protocol, out),
                Slot::Run(run) => replies[run].encode(self.protocol, out),
            }
        }
    }

    async fn run_single(&self, spec: &'static Spec, data: &Data) -> Reply {
        let Some(login) = &self.login else { return no_auth() };
        let _turn = match self.turn(login) {
            Ok(turn) => turn,
            Err(refused) => return refused,
        };
        let watch = Stopwatch::start();
        let (reply, replaced) = run_alone(&login.records, data, self.app.time()).await;
        self.meters.took(watch.elapsed(), 1);
        self.meters.count(spec, &reply);
        self.app.quotas.added(&login.caller.scope, added(spec, data, &reply).saturating_sub(replaced));
        reply
    }

    async fn run_together(&self, runs: &[(&'static Spec, Data)]) -> Vec<Reply> {
        if runs.is_empty() {
            return Vec::new();
        }
        let Some(login) = &self.login else { return vec![no_auth(); runs.len()] };
        // Commands that share a commit share a place, as those of one batch over HTTP do.
        let _turn = match self.turn(login) {
            Ok(turn) => turn,
            Err(refused) => return vec![refused; runs.len()],
        };
        let watch = Stopwatch::start();
        let commands = runs.iter().map(|(_, data)| data);
        let (replies, replaced) = run_each(&login.records, commands, self.app.time()).await;
        self.meters.took(watch.elapsed(), runs.len());
        self.meters.count_all(runs.iter().zip(&replies).map(|((spec, _), reply)| (*spec, reply)));
        let added: u64 =
            runs.iter().zip(&replies).map(|((spec, data), reply)| added(spec, data, reply)).sum();
        self.app.quotas.added(&login.caller.scope, added.saturating_sub(replaced));
        replies
    }

    /// Counts the memory of replies until they are sent. Those that do not fit are refused where nothing was written for
    /// them.
    fn hold_replies(&mut self, runs: &[(&'static Spec, Data)], replies: &mut [Reply]) {
        let Some(login) = &self.login else { return };
        let size = |replies: &[Reply]| -> usize { replies.iter().map(Reply::size).sum() };
        let bytes = size(replies);
        if bytes <= UNCOUNTED_BYTES {
            return;
        }
        let held = login.share().answer(bytes, true).or_else(|refused| {
            let refused = Reply::from(refused);
            for ((_, data), reply) in runs.iter().zip(&mut *replies) {
                if data.effect() == Effect::Read {
                    *reply = refused.clone();
                }
            }
            login.share().answer(size(replies), false)
        });
        self.unsent.extend(held.ok());
    }

    /// Takes a place of the server, and one of the caller's own.
    pub(super) fn turn(&self, login: &Login) -> Result<Turn<'_>, Reply> {
        let share = &login.caller.share;
        let own = share.place()?;
        share.check_bytes()?;
        let place = self.app.edge.places.take();
        let busy = || Reply::error("UNAVAILABLE too many requests in flight; this one was not started");
        Ok(Turn { _own: own, _place: place.ok_or_else(busy)? })
    }

    /// Share of the caller in the memory of the node; none before a key was presented.
    pub(super) fn share(&self) -> Option<&Arc<Share>> {
        self.login.as_ref().map(|login| &login.caller.share)
    }

    /// Looks at the key again: it may have been revoked since.
    async fn look_at_key(&mut self) {
        let Some(login) = &mut self.login else { return };
        match self.app.caller_again(&login.presented, &login.caller).await {
            Ok(caller) => {
                if let Some(caller) = caller {
                    login.caller = caller;
                }
                self.fault = None;
            }
            Err(problem) if problem.kind() == "unavailable" => self.fault = Some(problem.into()),
            Err(_) => {
                self.login = None;
                self.fault = None;
            }
        }
    }

    /// Presents a key. The error is the reply.
    pub(super) async fn log_in(&mut self, user: &[u8], key: &[u8]) -> Result<(), Reply> {
        let wrong = || Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
        let (Ok(user), Ok(key)) = (std::str::from_utf8(user), std::str::from_utf8(key)) else {
            return Err(wrong());
        };
        let scope = match user {
            "default" => None,
            scope => Some(scope.parse::<Scope>().map_err(|_| wrong())?),
        };
        let is_scoped = scope.is_some();
        let presented = Presented::new(key, scope);
        match self.app.caller(&presented).await {
            Ok(caller) => {
                if !is_scoped && caller.scope == Scope::Global {
                    self.note_unscoped(&caller)?;
                }
                let records = self.app.stores.records(&caller.scope);
                self.login = Some(Login { presented, user: user.to_owned(), caller, records });
                self.fault = None;
                Ok(())
            }
            Err(problem) if problem.kind() == "unavailable" => Err(problem.into()),
            Err(_) => Err(wrong()),
        }
    }

    /// Counts a login to the global scope that names no scope, and refuses it if one is required.
    fn note_unscoped(&self, caller: &Caller) -> Result<(), Reply> {
        let (key, now) = (caller.key_id(), self.app.now()?.latest());
        let noted = self.app.scoping.note(&key, &self.meters.route, now);
        noted.map_err(|_| {
            Reply::error("NOPERM a scope is required; send AUTH SCOPE KEY, such as AUTH tenant:acme KEY")
        })
    }

    fn check_login(&self) -> Result<&Login, Reply> {
        match (&self.login, &self.fault) {
            (None, _) => Err(no_auth()),
            (Some(_), Some(fault)) => Err(fault.clone()),
            (Some(login), None) => Ok(login),
        }
    }

    /// Checks that the caller may run the command.
    async fn admit(&self, spec: &Spec) -> Result<(), Reply> {
        if spec.need == Need::Nothing {
            return Ok(());
        }
        let login = self.check_login()?;
        login.caller.spend(self.app.time())?;
        let needs = match spec.need {
            Need::Nothing | Need::Key | Need::Read => Role::Reader,
            Need::Write | Need::Create => Role::Writer,
        };
        if login.caller.role() < needs {
            return Err(Reply::error(format!(
                "NOPERM User {} has no permissions to run the '{}' command",
                login.user, spec.name
            )));
        }
        if spec.need == Need::Create {
            let quotas = &self.app.quotas;
            quotas.check(&self.app.stores, &login.caller.scope, self.app.time()).await?;
        }
        Ok(())
    }

    /// Spoils an open transaction: `EXEC` runs nothing.
    fn spoil(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.dirty = true;
        }
    }

    fn enqueue(&mut self, spec: &'static Spec, data: Data, args: &[Bytes]) -> Reply {
        self.push(spec, Queued::Data(spec, data), args.iter().map(Bytes::len).sum())
    }

    fn push(&mut self, spec: &Spec, queued: Queued, bytes: usize) -> Reply {
        let most = self.app.edge.limits.body_bytes;
        let Some(queue) = &mut self.queue else { return Reply::error("ERR no transaction is open") };
        queue.bytes += bytes;
        if queue.commands.len() >= MAX_QUEUED || queue.bytes > most {
            queue.dirty = true;
            return Reply::error(format!(
                "ERR a transaction has at most {MAX_QUEUED} commands and {most} bytes; '{}' is not queued",
                spec.name
            ));
        }
        queue.commands.push(queued);
        Reply::Simple("QUEUED")
    }

    async fn control_or_queue(&mut self, spec: &'static Spec, args: &[Bytes]) -> Reply {
        match spec.name {
            "multi" if self.queue.is_some() => Reply::error("ERR MULTI calls can not be nested"),
            "multi" => {
                self.queue = Some(Queue::default());
                Reply::OK
            }
            "exec" => self.exec().await.unwrap_or_else(|refused| refused),
            "discard" if self.queue.is_none() => Reply::error("ERR DISCARD without MULTI"),
            "discard" => {
                self.end_transaction();
                Reply::OK
            }
            "watch" if self.queue.is_some() => Reply::error("ERR WATCH inside MULTI is not allowed"),
            "watch" => self.watch(&args[1..]).await.unwrap_or_else(|refused| refused),
            "unwatch" if self.queue.is_none() => {
                self.watched.clear();
                Reply::OK
            }
            "quit" => {
                self.closing = true;
                Reply::OK
            }
            "reset" => {
                self.end_transaction();
                (self.login, self.name, self.protocol) = (None, Bytes::new(), Protocol::Resp2);
                Reply::Simple("RESET")
            }
            _ if self.queue.is_none() => self.control(spec, args).await,
            "ping" | "echo" | "select" | "time" => {
                let reply = self.control(spec, args).await;
                let size = reply.size();
                self.push(spec, Queued::Reply(reply), size)
            }
            "unwatch" => self.push(spec, Queued::Reply(Reply::OK), 0),
            name => {
                self.spoil();
                Reply::error(format!("ERR Command not allowed inside a transaction: '{name}'"))
            }
        }
    }

    pub(super) fn end_transaction(&mut self) {
        self.queue = None;
        self.watched.clear();
    }

    async fn watch(&mut self, keys: &[Bytes]) -> Result<Reply, Reply> {
        let most = ebbtide::Batch::MAX_WRITES;
        if self.watched.len() + keys.len() > most {
            return Err(Reply::error(format!("ERR a transaction has at most {most} keys")));
        }
        let new: Vec<Bytes> = keys
            .iter()
            .filter(|key| !self.watched.iter().any(|watched| watched.key == **key))
            .cloned()
            .collect();
        let login = self.check_login()?;
        let turn = self.turn(login)?;
        let watched = watch(&login.records, &new).await?;
        drop(turn);
        self.watched.extend(watched);
        Ok(Reply::OK)
    }

    async fn exec(&mut self) -> Result<Reply, Reply> {
        let watched = std::mem::take(&mut self.watched);
        let Some(queue) = self.queue.take() else { return Err(Reply::error("ERR EXEC without MULTI")) };
        if queue.dirty {
            return Err(Reply::error("EXECABORT Transaction discarded because of previous errors."));
        }
        let login = self.check_login()?;
        let turn = self.turn(login)?;
        let commands: Vec<&Data> = queue
            .commands
            .iter()
            .filter_map(|queued| match queued {
                Queued::Data(_, data) => Some(data),
                Queued::Reply(_) => None,
            })
            .collect();
        let executed = execute(&login.records, &commands, &watched, self.app.time()).await?;
        let Some(replies) = executed else { return Ok(Reply::NilArray) };
        let (mut replies, mut new) = (replies.into_iter(), 0);
        let in_order = queue.commands.into_iter().map(|queued| match queued {
            Queued::Data(spec, data) => {
                let reply = replies.next().unwrap_or(Reply::Nil);
                self.meters.count(spec, &reply);
                new += added(spec, &data, &reply);
                reply
            }
            Queued::Reply(reply) => reply,
        });
        let replies = Reply::Array(in_order.collect());
        self.app.quotas.added(&login.caller.scope, new);
        let held = (replies.size() > UNCOUNTED_BYTES).then(|| login.share().answer(replies.size(), false));
        drop(turn);
        self.unsent.extend(held.and_then(Result::ok));
        Ok(replies)
    }
}

/// Records that a command may have added.
fn added(spec: &Spec, data: &Data, reply: &Reply) -> u64 {
    if spec.need == Need::Create { data.added(reply) } else { 0 }
}
