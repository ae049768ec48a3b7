//! Commands about the connection and the server.

use bytes::Bytes;
use ebbtide::stores::records::Records;

use super::glob;
use super::parse::{SYNTAX, integer, wrong_arity};
use super::reply::{Protocol, Reply};
use super::session::Session;
use super::specs::{SPECS, Spec, find};

/// Version of Redis that clients are told, since some choose their commands by it.
const REDIS_VERSION: &str = "7.4.0";

/// Default of `SCAN … COUNT`, and its most.
const SCAN_COUNT: usize = 10;
const MAX_SCAN_COUNT: usize = 1_000;

impl Session {
    pub(super) async fn control(&mut self, spec: &'static Spec, args: &[Bytes]) -> Reply {
        let answer = match spec.name {
            "ping" => match args {
                [_] => Ok(Reply::Simple("PONG")),
                [_, message] => Ok(Reply::Bulk(message.clone())),
                _ => Err(wrong_arity("ping")),
            },
            "echo" => Ok(Reply::Bulk(args[1].clone())),
            "time" => self.app.now().map_err(Reply::from).map(|now| {
                let millis = now.latest().as_millis();
                let parts = [millis / 1_000, millis % 1_000 * 1_000];
                Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).into())
            }),
            "select" => match integer(&args[1]) {
                Ok(0) => Ok(Reply::OK),
                Ok(_) => Err(Reply::error("ERR DB index is out of range")),
                Err(refused) => Err(refused),
            },
            "auth" => self.auth(args).await,
            "hello" => self.hello(args).await,
            "client" => self.client(args),
            "command" => command(args),
            "config" => config(args),
            "info" => Ok(Reply::bulk(self.info(&args[1..]))),
            "scan" => self.scan(args).await,
            name => Err(Reply::error(format!("ERR unknown command '{name}'"))),
        };
        answer.unwrap_or_else(|refused| refused)
    }

    async fn auth(&mut self, args: &[Bytes]) -> Result<Reply, Reply> {
        match args {
            [_, key] => self.log_in(b"default", key).await?,
            [_, user, key] => self.log_in(user, key).await?,
            _ => return Err(SYNTAX),
        }
        Ok(Reply::OK)
    }

    async fn hello(&mut self, args: &[Bytes]) -> Result<Reply, Reply> {
        let mut protocol = self.protocol;
        let mut options = args[1..].iter();
        if let Some(version) = options.next() {
            protocol = match integer(version) {
                Ok(2) => Protocol::Resp2,
                Ok(3) => Protocol::Resp3,
                Ok(_) => return Err(Reply::error("NOPROTO unsupported protocol version")),
                Err(_) => {
                    return Err(Reply::error("ERR Protocol version is not an integer or out of range"));
                }
            };
        }
        let (mut login, mut name) = (None, None);
        while let Some(option) = options.next() {
            let wrong = || Reply::error(format!("ERR Syntax error in HELLO option '{}'", shown(option)));
            if option.eq_ignore_ascii_case(b"auth") {
                let (Some(user), Some(key)) = (options.next(), options.next()) else { return Err(wrong()) };
                login = Some((user, key));
            } else if option.eq_ignore_ascii_case(b"setname") {
                name = Some(options.next().ok_or_else(wrong)?);
            } else {
                return Err(wrong());
            }
        }
        if let Some((user, key)) = login {
            self.log_in(user, key).await?;
        }
        if self.login.is_none() {
            return Err(Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time",
            ));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        self.protocol = protocol;
        let number = if protocol == Protocol::Resp3 { 3 } else { 2 };
        Ok(Reply::Map(vec![
            (Reply::bulk("server"), Reply::bulk("redis")),
            (Reply::bulk("version"), Reply::bulk(REDIS_VERSION)),
            (Reply::bulk("proto"), Reply::Integer(number)),
            (Reply::bulk("id"), Reply::Integer(i64::try_from(self.id).unwrap_or(i64::MAX))),
            (Reply::bulk("mode"), Reply::bulk("standalone")),
            (Reply::bulk("role"), Reply::bulk("master")),
            (Reply::bulk("modules"), Reply::Array(Vec::new())),
        ]))
    }

    fn set_name(&mut self, name: &Bytes) -> Result<(), Reply> {
        if name.len() > 256 || !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            return Err(Reply::error(
                "ERR Client names cannot contain spaces, newlines or special characters.",
            ));
        }
        // A copy: the name would keep the whole packet that it came in.
        self.name = Bytes::copy_from_slice(name);
        Ok(())
    }

    fn client(&mut self, args: &[Bytes]) -> Result<Reply, Reply> {
        let sub = String::from_utf8_lossy(&args[1]).to_ascii_lowercase();
        let fits = |least: usize, most: usize| {
            let fits = (least..=most).contains(&(args.len() - 2));
            if fits { Ok(()) } else { Err(wrong_arity(&format!("client|{sub}"))) }
        };
        match sub.as_str() {
            "id" => {
                fits(0, 0)?;
                Ok(Reply::Integer(i64::try_from(self.id).unwrap_or(i64::MAX)))
            }
            "getname" => {
                fits(0, 0)?;
                Ok(if self.name.is_empty() { Reply::Nil } else { Reply::Bulk(self.name.clone()) })
            }
            "setname" => {
                fits(1, 1)?;
                self.set_name(&args[2]).map(|()| Reply::OK)
            }
            "setinfo" => {
                fits(2, 2)?;
                if !args[2].eq_ignore_ascii_case(b"lib-name") && !args[2].eq_ignore_ascii_case(b"lib-ver") {
                    return Err(Reply::error("ERR Unrecognized option"));
                }
                Ok(Reply::OK)
            }
            "info" | "list" => Ok(Reply::bulk(self.describe())),
            "no-evict" | "no-touch" => {
                fits(1, 1)?;
                Ok(Reply::OK)
            }
            "tracking" if args.get(2).is_some_and(|mode| mode.eq_ignore_ascii_case(b"off")) => Ok(Reply::OK),
            _ => Err(Reply::error(format!("ERR unknown subcommand '{}'. Try CLIENT HELP.", shown(&args[1])))),
        }
    }

    /// Line about this connection. Those of others are not told.
    fn describe(&self) -> String {
        let resp = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let name = String::from_utf8_lossy(&self.name);
        let user = self.login.as_ref().map_or("default", |login| login.user.as_str());
        format!("id={} name={name} db=0 resp={resp} user={user}\n", self.id)
    }

    fn info(&self, sections: &[Bytes]) -> String {
        let wanted = |name: &str| {
            let all = |section: &Bytes| {
                ["all", "default", "everything"].iter().any(|it| section.eq_ignore_ascii_case(it.as_bytes()))
            };
            sections.is_empty()
                || sections
                    .iter()
                    .any(|section| section.eq_ignore_ascii_case(name.as_bytes()) || all(section))
        };
        let connections = self.app.edge.connections.load(std::sync::atomic::Ordering::Relaxed);
        let server = format!(
            "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nebbtide_version:{}\r\nengine:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            self.app.backend.0.info().engine,
        );
        let parts = [
            ("Server", server),
            ("Clients", format!("connected_clients:{connections}\r\n")),
            ("Persistence", "loading:0\r\naof_enabled:1\r\n".to_owned()),
            ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
            ("Cluster", "cluster_enabled:0\r\n".to_owned()),
        ];
        let shown = parts.iter().filter(|(name, _)| wanted(name));
        shown.map(|(name, lines)| format!("# {name}\r\n{lines}")).collect::<Vec<_>>().join("\r\n")
    }

    async fn scan(&mut self, args: &[Bytes]) -> Result<Reply, Reply> {
        let cursor = std::str::from_utf8(&args[1]).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or_else(|| Reply::error("ERR invalid cursor"))?;
        let (mut pattern, mut count, mut strings) = (None, SCAN_COUNT, true);
        for option in args[2..].chunks(2) {
            let [option, value] = option else { return Err(SYNTAX) };
            if option.eq_ignore_ascii_case(b"match") {
                pattern = Some(value);
            } else if option.eq_ignore_ascii_case(b"count") {
                let wanted = usize::try_from(integer(value)?).ok().filter(|wanted| *wanted > 0);
                count = wanted.ok_or(SYNTAX)?.min(MAX_SCAN_COUNT);
            } else if option.eq_ignore_ascii_case(b"type") {
                strings = value.eq_ignore_ascii_case(b"string");
            } else {
                return Err(SYNTAX);
            }
        }
        let Some(login) = &self.login else { return Err(Reply::error("NOAUTH Authentication required.")) };
        let _turn = self.turn(login)?;
        // It reads any number of records, and so takes no thread from other commands: as a listing over HTTP.
        let _heavy = login.share().heavy().await?;
        let records = login.records.clone();
        let walk = async move { records.scan(Records::REDIS, cursor, count).await };
        let page = self.app.edge.walker.run(walk).await??;
        let fits = |id: &[u8]| strings && pattern.is_none_or(|pattern| glob::matches(pattern, id));
        let keys = page.items.iter().filter(|item| fits(item.id.as_bytes()));
        let keys = keys.map(|item| Reply::bulk(item.id.as_bytes().to_vec())).collect();
        Ok(Reply::Array(vec![Reply::bulk(page.next.to_string()), Reply::Array(keys)]))
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(64).collect()
}

fn command(args: &[Bytes]) -> Result<Reply, Reply> {
    let Some(sub) = args.get(1) else {
        return Ok(Reply::Array(SPECS.iter().map(Spec::describe).collect()));
    };
    match sub.to_ascii_lowercase().as_slice() {
        b"count" => Ok(Reply::Integer(i64::try_from(SPECS.len()).unwrap_or(i64::MAX))),
        b"docs" => Ok(Reply::Map(Vec::new())),
        b"list" => Ok(Reply::Array(SPECS.iter().map(|spec| Reply::bulk(spec.name)).collect())),
        b"info" if args.len() == 2 => Ok(Reply::Array(SPECS.iter().map(Spec::describe).collect())),
        b"info" => {
            let describe = |name: &Bytes| find(name).map_or(Reply::NilArray, Spec::describe);
            Ok(Reply::Array(args[2..].iter().map(describe).collect()))
        }
        b"getkeys" => keys_of(&args[2..]),
        _ => Err(Reply::error(format!("ERR unknown subcommand '{}'. Try COMMAND HELP.", shown(sub)))),
    }
}

/// Keys of a command, by the positions in the table.
fn keys_of(args: &[Bytes]) -> Result<Reply, Reply> {
    let spec = args.first().and_then(|name| find(name));
    let spec = spec.ok_or_else(|| Reply::error("ERR Invalid command specified"))?;
    if !spec.fits(args.len()) {
        return Err(Reply::error("ERR Invalid number of arguments specified for command"));
    }
    let (first, last, step) = spec.keys;
    let (Ok(first), Ok(step)) = (usize::try_from(first), usize::try_from(step)) else { return Err(SYNTAX) };
    if first == 0 {
        return Err(Reply::error("ERR The command has no key arguments"));
    }
    let last = usize::try_from(last).unwrap_or(args.len() - 1);
    let keys = args[first..=last].iter().step_by(step.max(1));
    Ok(Reply::Array(keys.cloned().map(Reply::Bulk).collect()))
}

/// The few parameters that clients and tools ask for.
fn config(args: &[Bytes]) -> Result<Reply, Reply> {
    if !args[1].eq_ignore_ascii_case(b"get") {
        return Err(Reply::error("ERR CONFIG has GET alone; set what `ebbtide serve --help` lists"));
    }
    let known = [
        ("save", ""),
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("databases", "1"),
        ("maxmemory", "0"),
    ];
    let asked = |name: &str| {
        args[2..].iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    };
    let found = known.iter().filter(|(name, _)| asked(name));
    Ok(Reply::Map(found.map(|(name, value)| (Reply::bulk(*name), Reply::bulk(*value))).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ebbtide::{Ebbtide, Secret};
    use futures_util::FutureExt as _;

    use super::*;
    use crate::app::App;

    #[tokio::test]
    async fn a_scan_waits_for_its_turn_among_the_walks_of_its_key() {
        const KEY: &str = "ebk_the-root-key-of-this-test";
        let app = App::new(&Ebbtide::in_memory(), &Secret::new(KEY));
        let mut session = Session::new(app.clone(), Arc::default(), 1);
        session.log_in(b"default", KEY.as_bytes()).await.unwrap();
        let walks = [app.edge.root.heavy().await.unwrap(), app.edge.root.heavy().await.unwrap()];
        let args = [Bytes::from_static(b"SCAN"), Bytes::from_static(b"0")];
        let mut scan = Box::pin(session.control(find(b"scan").unwrap(), &args));
        for _ in 0..10 {
            assert!(scan.as_mut().now_or_never().is_none(), "a third walk of one key has begun");
            tokio::task::yield_now().await;
        }
        drop(walks);
        assert_eq!(scan.await, Reply::Array(vec![Reply::bulk("0"), Reply::Array(Vec::new())]));
    }
}
