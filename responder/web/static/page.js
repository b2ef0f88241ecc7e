// Asks for the page that is shown again and again, and puts in place what is new. Everything works without it.
"use strict";
(() => {
  const EVERY = 5000, LONGEST = 60000;
  const live = document.getElementById("live");
  let tag = "", failures = 0, timer = 0, asking = null, last = Date.now(), drawn = last;

  // Make `old` like `fresh` and keep what is the same: focus, selection, hover and scrolling stay where they are.
  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const known = new Map();
    for (const child of old.children) if (child.id) known.set(child.id, child);
    let place = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const same = next.id ? known.get(next.id) : place && !place.id ? place : null;
      if (!same) {
        old.insertBefore(next, place);
        continue;
      }
      if (same !== place) old.insertBefore(same, place);
      else place = place.nextSibling;
      morph(same, next);
    }
    while (place) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  function states() {
    return new Map([...document.querySelectorAll("[data-state]")].map((row) => [row.id, row.dataset.state]));
  }

  function take(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const before = states();
    const focused = document.activeElement;
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      if (old) morph(old, document.adoptNode(part));
    }
    // A row that has moved to another place in the list has lost it.
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    const told = [];
    for (const [id, state] of states()) {
      if (!before.has(id) || before.get(id) === state) continue;
      const row = document.getElementById(id);
      const name = (row.querySelector(".name") || document.querySelector("h1")).textContent;
      told.push(`${name} is ${state}`);
      row.classList.add("changed");
      setTimeout(() => row.classList.remove("changed"), 2000);
    }
    const alarms = document.querySelectorAll("#notices .alarm").length;
    if (told.length) document.getElementById("news").textContent = told.slice(0, 3).join(", ") + (told.length > 3 ? ` and ${told.length - 3} more` : "");
    document.title = document.title.replace(/^\(!\) /, "");
    if (alarms) document.title = `(!) ${document.title}`;
  }

  async function ask() {
    clearTimeout(timer);
    if (asking) asking.abort();
    const mine = (asking = new AbortController());
    const limit = setTimeout(() => mine.abort(), 15000);
    try {
      const answer = await fetch(location.pathname + location.search, {
        headers: { "X-Live": "1", ...(tag ? { "If-None-Match": tag } : {}) },
        cache: "no-store", redirect: "error", signal: mine.signal,
      });
      if (answer.status === 401) {
        live.textContent = "Your session has ended: reload to sign in.";
        return;
      }
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
        take(await answer.text());
        tag = answer.headers.get("ETag") || "";
      }
      failures = 0;
      last = Date.now();
      live.classList.remove("notice", "alarm");
    } catch (error) {
      if (asking !== mine) return;
      failures += 1;
    } finally {
      clearTimeout(limit);
    }
    asking = null;
    later();
    tick();
  }

  function later() {
    clearTimeout(timer);
    if (document.hidden) return;
    const wait = Math.min(EVERY * 2 ** Math.min(failures, 6), LONGEST);
    timer = setTimeout(ask, wait * (failures ? 0.8 + 0.4 * Math.random() : 1));
  }

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  function short(seconds) {
    const whole = Math.round(Math.abs(seconds));
    for (let i = 0; i < 3; i++) {
      const [unit, size] = UNITS[i], [finer, smaller] = UNITS[i + 1];
      if (whole < size) continue;
      const rest = Math.floor((whole % size) / smaller);
      return `${Math.floor(whole / size)} ${unit}` + (rest && size > 60 ? ` ${rest} ${finer}` : "");
    }
    return `${whole} s`;
  }

  function tick() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time")) {
      const apart = (Date.parse(time.dateTime) - now) / 1000;
      const place = "left" in time.dataset || "fresh" in time.dataset ? time : time.querySelector(".ago");
      if (!place || Number.isNaN(apart)) continue;
      if ("fresh" in time.dataset) time.hidden = -apart < Number(time.dataset.fresh);
      const said = "left" in time.dataset ? (apart > 0 ? `${short(apart)} left` : "ended")
        : "fresh" in time.dataset ? `counted ${short(apart)} ago`
        : Math.abs(apart) < 1 ? "(now)" : apart > 0 ? `(in ${short(apart)})` : `(${short(apart)} ago)`;
      if (place.textContent !== said) place.textContent = said;
    }
    const image = document.getElementById("utilization");
    if (image && !failures && now - drawn > LONGEST) {
      drawn = now;
      image.src = `${image.src.replace(/&at=.*$/, "")}&at=${now}`;
    }
    const age = Math.round((now - last) / 1000);
    if (failures) {
      live.classList.add("notice", "alarm");
      live.textContent = `Not up to date: no answer for ${short(age)}`;
    } else if (!live.textContent.startsWith("Your session")) live.textContent = age > 15 ? `As of ${short(age)} ago` : "Live";
  }

  // A decision is shown when its mark is chosen, by mouse or by keyboard.
  document.addEventListener("click", (event) => {
    const mark = event.target.closest && event.target.closest(".pygal-chart a");
    const line = mark && document.getElementById(mark.getAttribute("href").slice(1));
    if (!line) return;
    event.preventDefault();
    line.scrollIntoView({ block: "center" });
    line.focus();
  });

  // A link to a form that is folded opens it.
  function unfold() {
    const aim = location.hash && document.getElementById(location.hash.slice(1));
    const fold = aim && aim.closest("details");
    if (!fold) return;
    fold.open = true;
    const first = fold.querySelector("form select, form textarea, form input:not([type=hidden])");
    if (first) first.focus();
    fold.scrollIntoView({ block: "nearest" });
  }
  window.addEventListener("hashchange", unfold);
  unfold();

  // The list follows what is typed.
  const filter = document.getElementById("filter");
  if (filter) {
    let typed = 0;
    filter.addEventListener("input", () => {
      clearTimeout(typed);
      typed = setTimeout(() => {
        const wanted = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
        history.replaceState(null, "", wanted.size ? `?${wanted}` : location.pathname);
        tag = "";
        ask();
      }, 250);
    });
  }

  // What was done is said once, and not again when the page is reloaded.
  const address = new URL(location.href);
  for (const key of ["override", "silenced", "ended", "silence"]) address.searchParams.delete(key);
  if (address.href !== location.href) history.replaceState(null, "", address);

  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : ask()));
  window.addEventListener("online", ask);
  setInterval(() => document.hidden || tick(), 1000);
  for (const part of document.querySelectorAll(".scroll")) part.scrollLeft = part.scrollWidth;
  live.textContent = "Live";
  later();
})();
