//! The README's program: run it twice, the second time with the token that the first run printed.
//!
//! ```text
//! cargo run -p ebbtide --example quickstart [REFRESH_TOKEN]
//! ```

use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::replays::Proof;
use ebbtide::{Ebbtide, Secret};

#[tokio::main]
async fn main() -> ebbtide::Result<()> {
    let db = Ebbtide::open("fjall:./data").await?;
    let acme = db.scope("tenant:acme")?;
    println!("seen before: {:?}", acme.replays().check(&Proof::new("dpop", "n-0S6")).await?);
    let token = match std::env::args().nth(1) {
        Some(token) => Secret::new(token),
        None => acme.grants().issue(GrantRequest::new("alice", "app")).await?.refresh_token,
    };
    match acme.grants().rotate(Rotate::new(token, "app")).await? {
        RotateOutcome::Rotated(next) => println!("next token: {}", next.refresh_token.expose()),
        refused => println!("refused: {refused:?}"),
    }
    Ok(())
}
