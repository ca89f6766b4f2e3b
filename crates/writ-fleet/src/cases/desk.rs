//! The router as people ask it, through the methods of the engine.

use std::future::Future;

use futures::FutureExt as _;
use writ_runtime::fleet::{DeskAnswer, FleetDesk};
use writ_types::api::fleet::{
    CaseEnding, CaseName, CaseReturn, FleetStatus, GuestAnswer, HolderList, MessagePage, MessageQuery,
};
use writ_types::error::{Exit, Report, ToReport as _};

use super::access::{CaseAccess, read_access};
use super::error::CaseError;
use super::readings::list_for_person;
use super::router::CaseRouter;
use super::status::show_status;

/// The most bytes of texts in one answer: less than a frame takes, also with each byte escaped.
const MAX_PAGE_BYTES: usize = 512 * 1024;

/// Cuts a page to what one answer takes, and to one message at least; the rest comes with the next one.
fn fit_page(mut page: MessagePage) -> MessagePage {
    let mut bytes = 0_usize;
    let fits = page.messages.iter().take_while(|message| {
        bytes = bytes.saturating_add(message.text.len());
        bytes <= MAX_PAGE_BYTES
    });
    let count = fits.count().max(1);
    page.messages.truncate(count);
    page
}

/// Runs a change as a task of its own, so that a client that goes away cuts nothing off.
fn run_whole<'a, T: Send + 'static>(
    work: impl Future<Output = Result<T, CaseError>> + Send + 'static,
) -> DeskAnswer<'a, T> {
    let task = tokio::spawn(work);
    async move {
        match task.await {
            Ok(done) => done.map_err(|error| error.report()),
            // It has panicked, or the runtime ends.
            Err(error) => Err(Report::new(Exit::Bug, "case.task", "the change was not carried through")
                .with_inside(error.to_string())
                .with_hint(Exit::Bug.advice())),
        }
    }
    .boxed()
}

/// The desk of a router.
#[derive(Clone, Debug)]
pub struct CaseDesk(pub CaseRouter);

impl FleetDesk for CaseDesk {
    fn show_fleet(&self) -> DeskAnswer<'_, FleetStatus> {
        async { show_status(&self.0).await.map_err(|error| error.report()) }.boxed()
    }

    fn list_messages(&self, person: String, query: MessageQuery) -> DeskAnswer<'_, MessagePage> {
        async move {
            let page = list_for_person(&self.0, &person, query.case, query.after).await;
            page.map(fit_page).map_err(|error| error.report())
        }
        .boxed()
    }

    fn list_holders(&self, CaseName { case }: CaseName) -> DeskAnswer<'_, HolderList> {
        async move {
            let access = read_access(self.0.0.keys.store(), &case.to_string()).await;
            let access = access.map_err(|error| error.report())?;
            let CaseAccess { intervals: holders, readings, contradictions } = access;
            Ok(HolderList { holders, readings, contradictions })
        }
        .boxed()
    }

    fn take_case(&self, person: String, CaseName { case }: CaseName) -> DeskAnswer<'_, ()> {
        let router = self.0.clone();
        run_whole(async move { router.take_case(case, &person).await })
    }

    fn answer_guest(&self, person: String, answer: GuestAnswer) -> DeskAnswer<'_, ()> {
        let router = self.0.clone();
        run_whole(async move { router.answer_case(answer.case, &person, &answer.text).await })
    }

    fn return_case(&self, person: String, back: CaseReturn) -> DeskAnswer<'_, ()> {
        let router = self.0.clone();
        run_whole(
            async move { router.hand_back(back.case, (&person, back.target.as_deref()), &back.note).await },
        )
    }

    fn close_case(&self, person: String, ending: CaseEnding) -> DeskAnswer<'_, ()> {
        let router = self.0.clone();
        let reason = match ending.reason.is_empty() {
            true => format!("closed by {person}"),
            false => format!("closed by {person}: {}", ending.reason),
        };
        run_whole(async move { router.close_case(ending.case, &reason).await })
    }
}
