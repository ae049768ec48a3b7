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
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::session::Session;
use crate::app::App;
use crate::http::serve::{Place, rest};

/// Serves the Redis protocol on `listener` until `stop` resolves, then lets connections finish what they have begun.
pub async fn serve(
    listener: TcpListener,
    app: App,
    tls: Option<Arc<ServerConfig>>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (stopping, stopped) = watch::channel(());
    let server =
        Server { tls: tls.as_deref().map(without_alpn), app, stopped, connections: AtomicU64::new(0) };
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => server.take_on(stream, &mut tasks),
                Err(error) => rest(&error).await,
            },
        }
    }
    drop(listener);
    drop(stopping);
    let drained = timeout(server.app.edge.limits.shutdown_timeout, async {
        while tasks.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!(
            connections = tasks.len(),
            "shutdown timeout reached; closing connections to the Redis protocol"
        );
    }
    Ok(())
}

/// The same configuration for a protocol that has no name in the handshake.
fn without_alpn(tls: &ServerConfig) -> TlsAcceptor {
    let mut config = tls.clone();
    config.alpn_protocols.clear();
    TlsAcceptor::from(Arc::new(config))
}

struct Server {
    app: App,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<()>,
    /// Number of connections ever accepted.
    connections: AtomicU64,
}

impl Server {
    fn take_on(&self, stream: TcpStream, tasks: &mut JoinSet<()>) {
        let Some(place) = Place::take(&self.app.edge) else {
            metrics::counter!("ebbtide_connections_refused_total").increment(1);
            if self.tls.is_none() {
                tokio::spawn(turn_away(stream));
            }
            return;
        };
        let _ = stream.set_nodelay(true);
        let id = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Session::new(self.app.clone(), id);
        let (stop, limits) = (self.stopped.clone(), self.app.edge.limits);
        let idle_timeout = limits.resp_idle_timeout;
        match self.tls.clone() {
            None => drop(tasks.spawn(async move {
                Connection { stream, session, stop, idle_timeout, begun: None, held: None }.run().await;
                drop(place);
            })),
            Some(tls) => drop(tasks.spawn(async move {
                match timeout(limits.header_timeout, tls.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        Connection { stream, session, stop, idle_timeout, begun: None, held: None }
                            .run()
                            .await;
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake timed out"),
                }
                drop(place);
            })),
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
