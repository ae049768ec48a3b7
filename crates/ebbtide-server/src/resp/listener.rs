//! Accept loop of the Redis protocol, with or without TLS, within the limits of the server.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::meters::Meters;
use super::session::Session;
use crate::app::App;
use crate::http::cores::{Cores, Handles};
use crate::http::serve::{ConnectionSlot, rest};

/// Serves the Redis protocol on `listener` until `stop` resolves, on the current runtime; otherwise like
/// [`Listening::run`].
pub async fn serve(
    listener: TcpListener,
    app: App,
    tls: Option<Arc<ServerConfig>>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (_files, tls) = tls.map(watch::channel).unzip();
    Listening { listener, tls, cores: None }.run(app, stop).await
}

/// Listener of the Redis protocol.
#[derive(Debug)]
pub struct Listening {
    /// Listener.
    pub listener: TcpListener,
    /// Configuration of TLS; a new one applies to new connections.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// Threads that serve the connections; without them, the current runtime does.
    pub cores: Option<Arc<Cores>>,
}

impl Listening {
    /// Serves until `stop` resolves. After the drain delay it accepts no more connections, and lets those that there are
    /// finish what they have begun.
    pub async fn run(self, app: App, stop: impl Future<Output = ()> + Send) -> io::Result<()> {
        let (stopping, stopped) = watch::channel(());
        let edge = Arc::clone(&app.edge);
        let server = Server {
            cores: self.cores.as_ref().map_or_else(Handles::current, |cores| cores.handles()),
            app,
            tls: self.tls,
            stopped,
            meters: Arc::default(),
            connections: AtomicU64::new(0),
        };
        let mut stop = pin!(async {
            stop.await;
            edge.drain_delay().await;
        });
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => server.take_on(stream),
                    Err(error) => rest(&error).await,
                },
            }
        }
        drop((self.listener, server));
        let _ = stopping.send(());
        if timeout(edge.limits.shutdown_timeout, stopping.closed()).await.is_err() {
            tracing::warn!("shutdown timeout reached; closing connections to the Redis protocol");
        }
        Ok(())
    }
}

/// The same configuration for a protocol that has no name in the handshake.
fn without_alpn(tls: &ServerConfig) -> TlsAcceptor {
    let mut config = tls.clone();
    config.alpn_protocols.clear();
    TlsAcceptor::from(Arc::new(config))
}

struct Server {
    cores: Arc<Handles>,
    app: App,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    stopped: watch::Receiver<()>,
    meters: Arc<Meters>,
    /// Number of connections ever accepted.
    connections: AtomicU64,
}

impl Server {
    fn take_on(&self, stream: TcpStream) {
        let Some(place) = ConnectionSlot::take(&self.app.edge) else {
            metrics::counter!("ebbtide_connections_refused_total").increment(1);
            if self.tls.is_none() {
                tokio::spawn(turn_away(stream));
            }
            return;
        };
        let _ = stream.set_nodelay(true);
        let id = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Session::new(self.app.clone(), Arc::clone(&self.meters), id);
        let (stop, limits) = (self.stopped.clone(), self.app.edge.limits);
        let idle_timeout = limits.resp_idle_timeout;
        match self.tls.as_ref().map(|tls| without_alpn(&tls.borrow())) {
            None => self.cores.serve(stream, move |stream| async move {
                let activity = Arc::clone(place.activity());
                let connection =
                    Connection { stream, session, stop, idle_timeout, begun: None, held: None, activity };
                Box::pin(place.unless_evicted(connection.run())).await;
            }),
            Some(tls) => self.cores.serve(stream, move |stream| async move {
                let activity = Arc::clone(place.activity());
                let accepted = timeout(limits.header_timeout, tls.accept(stream));
                match place.unless_evicted(accepted).await {
                    Some(Ok(Ok(stream))) => {
                        let connection = Connection {
                            stream,
                            session,
                            stop,
                            idle_timeout,
                            begun: None,
                            held: None,
                            activity,
                        };
                        Box::pin(place.unless_evicted(connection.run())).await;
                    }
                    Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
                    Some(Err(_)) => tracing::debug!("TLS handshake timed out"),
                    None => {}
                }
            }),
        }
    }
}

async fn turn_away(mut stream: TcpStream) {
    let answer = async {
        stream.write_all(b"-ERR max number of clients reached\r\n").await?;
        stream.shutdown().await
    };
    // Best effort: the client may not read it.
    let _ = timeout(Duration::from_secs(1), answer).await;
}
