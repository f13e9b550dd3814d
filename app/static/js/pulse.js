// The clock of a page: asks for a refresh every five seconds while it is seen, once a minute while it is hidden, at once
// when it is seen again. Where no answer comes it says since when, by its own clock: the wall clock of a browser may be
// wrong.
export default function ({ data, setTriggerValue, parentElement }) {
  const own = parentElement;
  own.pulse ??= { requestedAt: performance.now(), answeredAt: performance.now(), moment: "", count: 0 };
  const pulse = own.pulse;
  const shown = () => document.querySelector(".st-key-head-live .eb-moment")?.textContent ?? "";
  const running = () => document.querySelector('[data-testid="stApp"]')?.dataset.testScriptState !== "notRunning";

  const tick = () => {
    const now = performance.now(), moment = shown();
    if (moment !== pulse.moment) { pulse.moment = moment; pulse.answeredAt = now; }
    const silent = !data.paused && !document.hidden && now - pulse.answeredAt > data.silent_ms
      && now - pulse.seenAt > data.silent_ms;
    const notice = document.getElementById("eb-silence");
    document.documentElement.classList.toggle("eb-silent", silent);
    if (silent && !notice) {
      const made = document.createElement("div");
      made.id = "eb-silence"; made.className = "eb-silence"; made.setAttribute("role", "alert");
      made.textContent = `▲ No answer since ${pulse.moment || "this page was opened"}: nothing here is of now.`;
      document.body.append(made);
    } else if (!silent && notice) notice.remove();
    const due = document.hidden ? data.hidden_ms : data.visible_ms;
    if (data.paused || running() || now - pulse.requestedAt < due) return;
    pulse.requestedAt = now; pulse.count += 1;
    setTriggerValue("beat", pulse.count);
  };
  const seen = () => {
    if (document.hidden) return;
    pulse.seenAt = performance.now(); pulse.requestedAt = -Infinity; tick();
  };
  // Nothing was asked for while it was paused.
  if (pulse.seenAt === undefined || (pulse.paused && !data.paused)) pulse.seenAt = performance.now();
  pulse.paused = data.paused;
  const timer = setInterval(tick, 500);
  document.addEventListener("visibilitychange", seen);
  return () => { clearInterval(timer); document.removeEventListener("visibilitychange", seen); };
}
