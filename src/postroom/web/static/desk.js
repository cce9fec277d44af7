// The page works without this script. It adds times in the reader's zone, a running count-down, keys, and live updates.
"use strict";

const find = (query, within = document) => within.querySelector(query);
const all = (query, within = document) => [...within.querySelectorAll(query)];
document.documentElement.classList.add("scripted");

// Times

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function span(seconds) {
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name}`;
  }
  return seconds < 10 ? "now" : `${Math.floor(seconds)} s`;
}

function local(within = document) {
  for (const time of all("time", within)) {
    const at = new Date(time.dateTime);
    if (time.classList.contains("ago")) time.textContent = span(Math.max(0, (Date.now() - at) / 1000));
    else time.textContent = DATE.format(at);
    time.title = at.toString();
  }
}

function countDown(within = document) {
  for (const shown of all(".countdown", within)) {
    if (!shown.ends) shown.ends = performance.now() + 1000 * shown.dataset.left;
    shown.textContent = Math.max(0, Math.ceil((shown.ends - performance.now()) / 1000));
  }
}

// Parts of a page that are loaded later

async function load(within = document) {
  for (const place of all("[data-load]", within)) {
    const address = place.dataset.load;
    delete place.dataset.load;
    const link = place.innerHTML;
    place.innerHTML = '<p class="quiet">Loading…</p>';
    try {
      const answer = await fetch(address, { headers: { "X-Desk-Live": "1" } });
      if (!answer.ok) throw new Error(answer.status);
      place.innerHTML = await answer.text();
      local(place);
    } catch {
      place.innerHTML = link;
    }
  }
}

// Live updates

let asking = false;
let again = false;

function busy() {
  const typing = all("main textarea, main input:not([type=hidden])").some((one) => one.type === "checkbox" ? one.checked : one.value !== one.defaultValue);
  return typing || find("article.edit") !== null;
}

let hiding = 0;

function tell(sentence, stays = false) {
  const toast = find("#toast");
  if (!toast) return;
  toast.textContent = sentence;
  clearTimeout(hiding);
  if (!stays) hiding = setTimeout(() => { toast.textContent = ""; }, 8000);
}

function swap(old, fresh) {
  if (!old || !fresh || old.isEqualNode(fresh)) return;
  const focused = document.activeElement?.id || document.activeElement?.getAttribute?.("href");
  const within = old.contains(document.activeElement);
  const top = old.scrollTop;
  old.replaceWith(fresh);
  fresh.scrollTop = top;
  const same = focused && (document.getElementById(focused) || all("a", fresh).find((one) => one.getAttribute("href") === focused));
  if (within) (same || fresh).focus();
}

async function refresh() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const old = find("[data-version]");
    // The address of a form cannot be fetched.
    const address = old ? `/letter/${old.dataset.letter}${location.search}` : location.href;
    const answer = await fetch(address, { headers: { "X-Desk-Live": "1" } });
    if (answer.status === 401) {
      if (busy()) tell("The page is locked. Your text is still here; you will be asked for your passphrase when you send it.", true);
      else location.assign(address);
      return;
    }
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    local(fresh);
    const current = find("[data-version]", fresh);
    document.title = fresh.title;
    swap(find("#queue"), find("#queue", fresh));
    swap(find(".bar nav"), find(".bar nav", fresh));
    if (!old || old.dataset.version === current?.dataset.version) {
      if (!old && !busy()) swap(find("main .summary"), find("main .summary", fresh));
    } else if (current && old.dataset.digest && old.dataset.digest !== current.dataset.digest) {
      // Not replaced while somebody reads it: an approval of what they read is refused.
      tell("This letter was changed in the meantime. Load the page again to see the current version.", true);
      for (const button of all("#approve")) button.disabled = true;
    } else if (busy()) {
      tell(`Already decided. ${find(".state", fresh)?.textContent.trim() || ""} Your text was not used.`, true);
    } else if (current) {
      swap(find("main"), find("main", fresh));
      const approve = find("#approve");
      if (approve) {  // it appears where another button was: a click that has begun is not meant for it
        approve.disabled = true;
        setTimeout(() => { approve.disabled = false; }, 1000);
      }
      find(".postmark")?.classList.add("fresh");
      load();
      tell(find(".state")?.textContent || "");
    } else {
      location.assign(address);
    }
    countDown();
  } catch {
    // The desk was stopped: the stream reconnects, or reports it.
  } finally {
    asking = false;
    if (again) { again = false; refresh(); }
  }
}

let stream = null;
let lost = 0;

function listen() {
  if (!find("body.desk") || stream || document.hidden) return;
  stream = new EventSource("/events");
  stream.addEventListener("change", refresh);
  stream.onopen = () => { if (lost) { tell("Reconnected."); refresh(); } lost = 0; };
  stream.onerror = () => {
    lost += 1;
    if (lost === 3) tell("The desk does not answer. Is `postroom desk` still running?", true);
    // Another program may use the port by now: the page asks again when somebody looks at it.
    if (lost >= 20) { stream?.close(); stream = null; return; }
    // Refused, not lost: loading the page shows why, for example that it is locked.
    if (stream?.readyState === EventSource.CLOSED) { stream = null; refresh(); setTimeout(listen, 5000); }
  };
}

// A browser opens at most six connections to a host: a hidden page gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; } else { listen(); refresh(); }
});

// Keys

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  a: () => (find("form.approve .seen input:not(:checked)") || find("#approve"))?.focus(),
  e: () => find("#edit")?.click(),
  r: () => openReason("reject"),
  v: () => openReason("revise"),
  u: () => (find("#undo") || find("#queue .recall button"))?.focus(),
  "/": () => { const box = find("#search"); if (box) box.focus(); else location.assign("/history#search"); },
  "?": () => find("#keys")?.showModal(),
};

function step(by) {
  const links = all("#queue li a");
  const here = links.findIndex((one) => one.hasAttribute("aria-current"));
  const next = links[here < 0 ? (by > 0 ? 0 : links.length - 1) : here + by];
  if (next) next.click();
}

function openReason(name) {
  const details = find(`details#${name}`);
  if (!details) return;
  details.open = true;
  find("textarea", details).focus();
}

const keep = { get on() { try { return localStorage.keys !== "off"; } catch { return true; } } };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && event.target.closest?.("details.reason")) {
    const details = event.target.closest("details.reason");
    details.open = false;
    find("summary", details).focus();
    return;
  }
  if (event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog[open]") || !keep.on) return;
  const act = KEYS[event.key];
  if (act && find("body.desk")) { event.preventDefault(); act(); }
});

// When the page is loaded

const shown = find("article#letter");
if (shown && (!location.pathname.endsWith(shown.dataset.letter) || /done=|again=/.test(location.search))) {
  history.replaceState(null, "", `/letter/${shown.dataset.letter}`);
}
find("#queue [aria-current]")?.scrollIntoView({ block: "nearest" });
local();
countDown();
load();
listen();
setInterval(countDown, 250);
setInterval(local, 30000);
find("form.enter.auto")?.submit();
if (location.hash === "#search") find("#search")?.focus();
find("#show-keys")?.addEventListener("click", KEYS["?"]);
const use = find("#use-keys");
if (use) {
  use.checked = keep.on;
  use.addEventListener("change", () => { try { localStorage.keys = use.checked ? "on" : "off"; } catch { /* not kept */ } });
}
document.addEventListener("submit", (event) => {
  if (event.target.method === "dialog") return;
  if (lost >= 3) { event.preventDefault(); tell("The desk does not answer, and nothing was done. Is `postroom desk` still running?", true); return; }
  window.leaving = true;
  setTimeout(() => { for (const one of all("button", event.target)) one.disabled = true; });
});
window.addEventListener("beforeunload", (event) => {
  const form = find("form.guard");
  if (form && !window.leaving && all("textarea, input:not([type=hidden])", form).some((one) => one.value !== one.defaultValue)) event.preventDefault();
});
