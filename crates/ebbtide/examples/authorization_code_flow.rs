//! A whole authorization-code flow as an authorization server walks through it: PKCE, a DPoP nonce and replay check,
//! a grant, rotation, a lost answer, and a theft.
//!
//! `cargo run --package ebbtide --example authorization_code_flow`

use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantId, IssuedGrant, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{Clock, Ebbtide, ManualClock, Result, Scoped, Secret, SystemClock};
use serde_json::json;
use sha2::{Digest as _, Sha256};

const CLIENT: &str = "photo-app";
const REDIRECT: &str = "https://photos.example/callback";
/// The thumbprint of the client's DPoP key. The server has verified the proof's signature before it asks the store.
const KEY: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // The clock is ours to move, so that the example does not wait.
    let clock = ManualClock::at(SystemClock.now());
    let db = Ebbtide::builder("memory:").clock(clock.clone()).open().await?;
    let server = Server { acme: db.scope("tenant:acme")? };

    say("the client makes a PKCE verifier and sends its challenge; ada signs in and consents");
    let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    let code = server.authorize(&verifier).await?;

    say("the client redeems the code, with a DPoP proof that has the server's nonce in it");
    let nonce = server.challenge().await?;
    server.check_proof(&nonce, "proof-1").await?;
    let grant = server.token(&code, &verifier).await?.expect("the code is good");
    let access = server.access(grant.grant_id).await?;
    server.resource("the first access token", &access).await?;

    say("someone plays the same proof again");
    server.check_proof(&nonce, "proof-1").await?;

    clock.advance(Duration::from_secs(900));
    say("a quarter of an hour later the access token has ended, and the client rotates");
    server.resource("the first access token", &access).await?;
    let second = server.refresh("the client", &grant.refresh_token).await?.expect("the token is good");

    say("the answer was lost on the way, so the client asks again, and gets the same successor");
    let again = server.refresh("the client", &grant.refresh_token).await?.expect("within the grace");
    assert_eq!(again, second);

    say("the client uses its new access token: the answer has arrived, and the window is closed");
    let access = server.access(grant.grant_id).await?;
    server.resource("the second access token", &access).await?;

    clock.advance(Duration::from_secs(3600));
    say("a thief who copied the refresh token and the key is faster than the client");
    let stolen = server.refresh("the thief", &second).await?.expect("the token is good, in either hand");
    let loot = server.access(grant.grant_id).await?;
    server.resource("the thief's access token", &loot).await?;

    clock.advance(Duration::from_secs(60));
    say("now the client comes with the same token: it is in two hands, and the family ends");
    assert!(server.refresh("the client", &second).await?.is_none());
    assert!(server.refresh("the thief", &stolen).await?.is_none());
    server.resource("the thief's access token", &loot).await?;

    say("and whoever has the old code finds out that it is worth nothing");
    assert!(server.token(&code, &verifier).await?.is_none());
    Ok(())
}

struct Server {
    acme: Scoped,
}

impl Server {
    async fn authorize(&self, verifier: &Secret) -> Result<Secret> {
        let challenge = Base64UrlUnpadded::encode_string(&Sha256::digest(verifier.expose()));
        let request = CodeRequest::new(CLIENT, "ada", REDIRECT)
            .code_challenge(challenge)
            .dpop_jkt(KEY)
            .scope("photos.read photos.write")
            .data(json!({ "acr": "mfa", "auth_time": 1_800_000_000 }));
        let issued = self.acme.codes().issue(request).await?;
        tell(&format!("code issued, good until {}", issued.expires_at));
        Ok(issued.code)
    }

    async fn challenge(&self) -> Result<Secret> {
        let issued = self.acme.nonces().issue(NonceRequest::new("https://as.example")).await?;
        tell(&format!("DPoP nonce issued, good until {}", issued.expires_at));
        Ok(issued.nonce)
    }

    async fn check_proof(&self, nonce: &Secret, jti: &str) -> Result<()> {
        let nonces = self.acme.nonces();
        match nonces.check(&NonceCheck::new("https://as.example", nonce.clone())).await? {
            NonceOutcome::Accepted { .. } => tell("nonce is good"),
            other => panic!("the nonce is good, but: {other:?}"),
        }
        let proof = Proof::new("https://as.example/token", jti).jkt(KEY);
        match self.acme.replays().check(&proof).await? {
            ReplayOutcome::Fresh { .. } => tell("proof is fresh"),
            _ => tell("proof REFUSED: it was seen before"),
        }
        Ok(())
    }

    async fn token(&self, code: &Secret, verifier: &Secret) -> Result<Option<IssuedGrant>> {
        let presented = Redeem::new(code.clone(), CLIENT)
            .redirect_uri(REDIRECT)
            .code_verifier(verifier.clone())
            .dpop_jkt(KEY)
            .with_grant();
        match self.acme.codes().redeem(presented.clone()).await? {
            RedeemOutcome::Redeemed(redeemed) => {
                let grant = redeemed.grant;
                let id = grant.as_ref().map(|grant| grant.grant_id.to_string()).unwrap_or_default();
                tell(&format!("code redeemed for {}: grant {id}, in the same commit", redeemed.subject));
                Ok(grant)
            }
            other => {
                tell(&format!("code REFUSED: {other:?}"));
                Ok(None)
            }
        }
    }

    async fn access(&self, grant_id: GrantId) -> Result<Secret> {
        let request = AccessRequest::under(grant_id).scope("photos.read");
        match self.acme.access_tokens().issue(request).await? {
            IssueOutcome::Issued(issued) => {
                tell(&format!("access token issued, good until {}", issued.expires_at));
                Ok(issued.access_token)
            }
            other => panic!("the grant is active, but: {other:?}"),
        }
    }

    async fn resource(&self, what: &str, token: &Secret) -> Result<()> {
        match self.acme.access_tokens().introspect(token).await? {
            IntrospectOutcome::Active(active) => {
                let scope = active.scope.unwrap_or_default();
                tell(&format!("{what} is active: {} may {scope}", active.subject));
            }
            _ => tell(&format!("{what} is INACTIVE")),
        }
        Ok(())
    }

    async fn refresh(&self, who: &str, token: &Secret) -> Result<Option<Secret>> {
        let answer = self.acme.grants().rotate(Rotate::new(token, CLIENT).dpop_jkt(KEY)).await?;
        let (how, rotated) = match answer {
            RotateOutcome::Rotated(rotated) => ("rotated to", rotated),
            RotateOutcome::Retried(rotated) => ("retried, again", rotated),
            other => {
                tell(&format!("{who} REFUSED: {other:?}"));
                return Ok(None);
            }
        };
        tell(&format!("{who}: {how} generation {}", rotated.generation));
        Ok(Some(rotated.refresh_token))
    }
}

fn say(step: &str) {
    println!("\n{step}");
}

fn tell(outcome: &str) {
    println!("    {outcome}");
}
