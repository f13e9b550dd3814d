// One act of a person is one entry of the browser's history: one step of Back is one step back.
//
// Streamlit's script adds an entry for each change of the address: for a link with parameters two (its parameters on the
// page before, then the page), and one more for what is bound to the address. The first one after an act is kept, those
// that follow it by themselves take its place, and so does what a refresh changes.
(() => {
  const ACT_MS = 10000; // a slow server answers an act later; what comes after that nobody did
  let actedAt = -Infinity;
  const act = () => { actedAt = performance.now(); };
  for (const kind of ["pointerdown", "keydown"]) window.addEventListener(kind, act, { capture: true, passive: true });
  window.addEventListener("popstate", () => { actedAt = -Infinity; }, true);
  const push = history.pushState.bind(history);
  history.pushState = (state, title, url) => {
    const acted = performance.now() - actedAt < ACT_MS;
    actedAt = -Infinity;
    return acted ? push(state, title, url) : history.replaceState(state, title, url);
  };
})();
