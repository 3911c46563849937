use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::alarm::panic_text;
use crate::model::ControlError;
use crate::{Alarm, Control};

/// Most calls at the same time; others wait.
pub(crate) const MOST: u32 = 16;

/// Carries calls to [`Control`] on blocking threads, each to its end, whatever becomes of its
/// caller.
pub(crate) struct Calls {
    control: Arc<dyn Control>,
    alarm: Alarm,
    seats: Arc<Semaphore>,
}

impl Calls {
    pub(crate) fn new(control: Arc<dyn Control>, alarm: Alarm) -> Self {
        Self {
            control,
            alarm,
            seats: Arc::new(Semaphore::new(MOST as usize)),
        }
    }

    /// Makes a call. A panic in it is this caller's error and the daemon's end: what it left half
    /// done is not known.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let stopping = || ControlError::environment("the daemon is stopping");
        let seat = self
            .seats
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| stopping())?;
        let control = self.control.clone();
        let task = spawn_blocking(move || {
            let result = call(control.as_ref());
            drop(seat);
            result
        });
        match task.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => {
                let why = panic_text(error.into_panic().as_ref());
                self.alarm.raise(format!("a request has died: {why}"));
                Err(ControlError::internal(format!(
                    "the request has died: {why}"
                )))
            }
            Err(_) => Err(stopping()),
        }
    }

    /// Waits until all calls have ended and lets no other begin. `false`: some go on after this
    /// time.
    pub(crate) async fn end(&self, patience: Duration) -> bool {
        let all = tokio::time::timeout(patience, self.seats.acquire_many(MOST)).await;
        self.seats.close();
        all.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeControl;

    #[tokio::test]
    async fn a_panic_is_an_error_and_raises_the_alarm() {
        let (alarm, mut heard) = Alarm::new();
        let calls = Calls::new(Arc::new(FakeControl::new()), alarm);
        let result: Result<(), _> = calls.call(|_| panic!("half done")).await;
        assert!(result.expect_err("died").message.contains("half done"));
        assert!(heard.try_recv().expect("raised").contains("half done"));
        calls
            .call(|_| Ok(()))
            .await
            .expect("the seat is free again");
    }

    #[tokio::test]
    async fn the_end_waits_for_calls_whose_caller_has_gone() {
        let (alarm, _heard) = Alarm::new();
        let calls = Arc::new(Calls::new(Arc::new(FakeControl::new()), alarm));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let call = calls.call(move |_| {
            let _ = released.recv();
            Ok(())
        });
        let gone = tokio::time::timeout(Duration::from_millis(50), call).await;
        assert!(gone.is_err(), "it is still under way");
        assert!(!calls.end(Duration::from_millis(50)).await, "and counts");
        drop(release);
        let late = calls.call(|_| Ok(())).await.expect_err("no other begins");
        assert!(late.message.contains("stopping"), "{late}");
    }
}
