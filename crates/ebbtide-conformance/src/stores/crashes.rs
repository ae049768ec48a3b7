//! Crashes of a deletion between any two of its writes: nothing is honoured after the first write, and another run
//! leaves nothing.

use super::clients::{find, is_good, register};
use super::owned_records::{Held, OwnedRecords, context, is_taken, push};
use super::owners::left;
use super::rig::StoreRig;
use crate::faulty::FaultPoint;
use ebbtide::model::error::Result;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome};
use ebbtide::stores::owners::Removed;
use ebbtide::stores::shared::tombstones::Principal;
use ebbtide::timekeeping::Now;

async fn delete_owner(rig: &StoreRig, owner: &str) -> Result<Removed> {
    rig.stores.owners(&rig.scope).delete(owner, &context()).await?.finish().await
}

async fn delete_client(rig: &StoreRig, client_id: &str) -> Result<Option<Removed>> {
    match rig.stores.clients(&rig.scope).delete(client_id, &context()).await? {
        Some(deletion) => Ok(Some(deletion.finish().await?)),
        None => Ok(None),
    }
}

async fn goes_on(rig: &StoreRig, mortal: Principal<'_>) -> bool {
    rig.stores.is_deleted(&rig.scope, &[mortal], Now::exact(rig.clock.now())).await.expect("ask")
}

/// Limit on the number of writes: a deletion that never ends fails the case.
const MOST_WRITES: u64 = 200;

pub(super) async fn a_deletion_of_an_owner_that_crashes_anywhere_honours_nothing(rig: StoreRig) {
    let (mut crashes, mut going) = (0, 0);
    for skip in 0..MOST_WRITES {
        let owner = format!("alice-{skip}");
        let owned_records = OwnedRecords::new(&rig, &owner).await;
        assert_eq!(owned_records.honoured(&rig).await.len(), OwnedRecords::ALL);
        let (crashing, faulty) = rig.faulty();
        // The write happens, and nothing after it.
        faulty.stay_down(skip, FaultPoint::After);
        let crashed = delete_owner(&crashing, &owner).await.is_err();
        assert_eq!(owned_records.honoured(&rig).await, [""; 0], "after write {skip}");
        // The last write ends the deletion and frees the name again.
        if goes_on(&rig, Principal::Owner(&owner)).await {
            assert_eq!(owned_records.made(&rig).await, [""; 0], "after write {skip}");
            going += 1;
        }
        delete_owner(&rig, &owner).await.expect("the second run");
        assert_eq!(left(&rig).await, [], "after write {skip}, and another run");
        assert_eq!(owned_records.given().honoured(&rig).await, [""; 0], "tokens that the client was given");
        if !crashed {
            break;
        }
        crashes += 1;
    }
    assert!((10..MOST_WRITES).contains(&crashes), "{crashes}");
    assert_eq!(going + 1, crashes, "all but the last write leave it going on");
}

pub(super) async fn a_deletion_of_a_client_that_crashes_anywhere_honours_nothing(rig: StoreRig) {
    let (mut crashes, mut going) = (0, 0);
    for skip in 0..MOST_WRITES {
        let client_id = format!("app-{skip}");
        let request = ClientRequest::confidential().client_id(&client_id).owner("alice");
        let secret = register(&rig, request).await.client_secret.expect("it keeps one");
        let held = Held::new(&rig, "bob", &client_id).await;
        let pushed = push(&rig, &client_id).await;
        let (crashing, faulty) = rig.faulty();
        faulty.stay_down(skip, FaultPoint::After);
        let crashed = delete_client(&crashing, &client_id).await.is_err();
        // A node of its own: one that had read the clients before holds them for its lease, and a deletion that was not
        // answered has not waited for that.
        let rig = rig.with_keyring(rig.keyring().clone());
        assert_eq!(find(&rig, &client_id).await, None, "after write {skip}");
        assert!(!is_good(&rig, &client_id, &secret).await, "after write {skip}");
        assert_eq!(held.honoured(&rig).await, [""; 0], "after write {skip}");
        assert!(!is_taken(&rig, &pushed, &client_id).await, "after write {skip}");
        if goes_on(&rig, Principal::Client(&client_id)).await {
            assert_eq!(held.made(&rig).await, [""; 0], "after write {skip}");
            let again = ClientRequest::public().client_id(&client_id);
            let again = rig.stores.clients(&rig.scope).register(again).await;
            assert!(
                !matches!(again, Ok(RegisterOutcome::Registered(_))),
                "it must not be re-created: after write {skip}"
            );
            going += 1;
        }
        // The last write ends the deletion: nothing is left to resume.
        delete_client(&rig, &client_id).await.expect("the second run");
        let left: Vec<_> =
            left(&rig).await.into_iter().filter(|kind| *kind != ebbtide::Kind::PushedRequest).collect();
        assert_eq!(left, [], "after write {skip}, and another run");
        if !crashed {
            break;
        }
        crashes += 1;
    }
    assert!((5..MOST_WRITES).contains(&crashes), "{crashes}");
    assert_eq!(going + 1, crashes, "all but the last write leave it going on");
}
