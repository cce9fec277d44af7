// Opens letters in place, and adds keys, side notes and live updates: the page works without.
"use strict";

const find = (query, within = document) => within.querySelector(query);
const all = (query, within = document) => [...within.querySelectorAll(query)];
const parse = (text) => new DOMParser().parseFromString(text, "text/html");
const STILL = { preventScroll: true };
const LIVE = { headers: { "X-Desk-Live": "1" } };
const STOPPED = "The desk does not answer. Is `postroom desk` still running?";
document.documentElement.classList.add("scripted");

// Times

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });

function local(within = document) {
  for (const time of all("time", within)) {
    const at = new Date(time.dateTime);
    time.textContent = (time.classList.contains("clock") ? CLOCK : DATE).format(at);
    time.title = at;
  }
}

function countDown() {
  for (const shown of all(".countdown")) {
    shown.ends ??= performance.now() + 1000 * shown.dataset.left;
    shown.textContent = Math.max(0, Math.ceil((shown.ends - performance.now()) / 1000));
  }
}

// The toast

let hiding = 0;

function keepToast(seconds) {
  clearTimeout(hiding);
  if (seconds) hiding = setTimeout(() => find("#toast")?.replaceChildren(), 1000 * seconds);
}

function tell(sentence, stays = false) {
  const toast = find("#toast");
  if (!toast) return;
  toast.textContent = sentence;
  keepToast(stays ? 0 : 8);
}

function showToast(fresh) {
  const toast = find("#toast");
  if (!toast || !fresh?.childElementCount) return;
  if (toast !== fresh) toast.replaceWith(fresh);
  keepToast(Math.max(8, Number(find(".countdown", fresh)?.dataset.left || 0)));
}

// Letters, opened in place

const letter = () => find("article[data-letter]");
const on_letter = () => document.body.classList.contains("letter");
let turn = 0;

const verdicts = () => all(".actions form.verdict:not(.undo) button, #approve");
let opening = false;  // another letter was asked for, and is not here yet

// No verdict counts while a letter has just been shown, or while another is on its way.
function settle() {
  for (const button of verdicts()) {
    button.disabled = true;
    setTimeout(() => { button.disabled = opening || "stale" in button.dataset; }, 700);
  }
}

function swap(old, fresh) {
  if (!old || !fresh || old.isEqualNode(fresh)) return;
  const focused = document.activeElement?.id || document.activeElement?.getAttribute?.("href");
  const within = old.contains(document.activeElement);
  const top = old.scrollTop;
  old.replaceWith(fresh);
  fresh.scrollTop = top;
  const same = focused && (document.getElementById(focused) || find(`a[href="${CSS.escape(focused)}"]`, fresh));
  if (within) (same || fresh).focus(STILL);
}

const tidy = (address) => {
  const url = new URL(address, location);
  ["done", "of", "again"].forEach((name) => url.searchParams.delete(name));
  return url.pathname + url.search;
};

// Show a page of the desk in place.
function put(fresh, address, push) {
  const searching = document.activeElement?.id === "find";
  const chosen = letter()?.dataset.letter;
  local(fresh);
  document.title = fresh.title;
  for (const query of ["#notices", ".bar"]) swap(find(query), find(query, fresh));
  const main = find("main", fresh);
  if (find(".side") && find(".side", fresh)) {
    for (const query of ["#queue", ...(searching ? [] : [".filter"])]) swap(find(query), find(query, fresh));
    find("main").replaceWith(main);
  } else find("main").parentNode.replaceWith(main.parentNode);
  document.body.className = fresh.body.className;
  showToast(find("#toast", fresh));
  history[push ? "pushState" : "replaceState"](null, "", tidy(address));
  if (letter()?.dataset.letter !== chosen) {
    letter()?.classList.add("slide");
    find("#note").hidePopover();
    if (on_letter()) scrollTo(0, 0);
    if (!searching) main.focus(STILL);
  }
  started();
}

async function open(address, push = true) {
  const number = ++turn;
  opening = true;
  for (const button of verdicts()) button.disabled = true;  // they decide about the letter that is left
  try {
    const answer = await fetch(address);
    const fresh = parse(await answer.text());
    if (number !== turn) return;
    opening = false;
    if (find("body.desk", fresh)) put(fresh, answer.url, push);
    else location.assign(address);
  } catch {
    if (number !== turn) return;
    opening = false;
    tell(STOPPED, true);
    settle();
  }
}

let deciding = false;

async function decide(form, button) {
  if (deciding) return;
  deciding = true;
  const data = new URLSearchParams(new FormData(form, button));
  if (!form.matches(".undo, .reopen") && button?.value !== "wait") data.set("next", (neighbour(1) || neighbour(-1))?.dataset.id || "");
  try {
    const answer = await fetch(form.action, { method: "POST", body: data });
    const fresh = parse(await answer.text());
    turn += 1;
    opening = false;
    if (find("body.desk", fresh)) put(fresh, answer.redirected ? answer.url : location, answer.redirected);
    // The verdict was carried out, but the page after it cannot be shown.
    else if (answer.redirected) location.assign(answer.url);
    // Locked: the passphrase is asked for, then the verdict carried out.
    else if (answer.status === 401) { leaving = true; form.requestSubmit(button); }
    else tell(`Not done. ${all(".cause, .remedy", fresh).map((one) => one.textContent).join(" ")}`, true);
  } catch {
    tell(`${STOPPED} Load the page again to see whether it was done.`, true);
    again = true;
  } finally {
    deciding = false;
    if (again) { again = false; refresh(); }
  }
}

// Parts of a page, loaded on demand

async function load(place, address) {
  const link = place.innerHTML;
  place.innerHTML = '<p class="quiet">Loading…</p>';
  try {
    const answer = await fetch(address, LIVE);
    if (!answer.ok) throw answer;
    place.innerHTML = await answer.text();
    local(place);
  } catch { place.innerHTML = link; }
}

function beside() {
  const link = find("#beside-link");
  if (!link) return;
  const place = find("#beside");
  place.hidden = !place.hidden;
  link.setAttribute("aria-expanded", !place.hidden);
  if (!place.hidden && !place.childElementCount) load(place, link.dataset.beside);
}

function sideNote(link) {
  const panel = find("#note");
  const notes = link.dataset.notes.split(" ").map((number) => find(`#note-${number}`));
  panel.replaceChildren(...notes.flatMap((note) => [...note.cloneNode(true).childNodes]));
  for (const place of all("[data-source]", panel)) load(place, place.dataset.source);
  const spot = all(".body .place").find((one) => one.dataset.notes.split(" ").includes(link.dataset.notes)) || link;
  if (spot !== link) spot.scrollIntoView({ block: "nearest" });
  panel.showPopover();
  const [at, rail] = [spot, find(".rail") || spot].map((one) => one.getBoundingClientRect());
  panel.style.left = `${Math.max(8, Math.min(rail.left, innerWidth - panel.offsetWidth - 16))}px`;
  panel.style.top = `${Math.max(8, Math.min(at.top, innerHeight - 460))}px`;
}

// Live updates

let asking = false;
let again = false;

function busy() {
  const has_text = all("main textarea, main input:not([type=hidden])").some((one) => one.type === "checkbox" ? one.checked : one.value !== one.defaultValue);
  return has_text || find("article.edit");
}

async function refresh() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const old = letter();
    const number = turn;
    // A form's address cannot be fetched.
    const address = old && on_letter() ? `/letter/${old.dataset.letter}${location.search}` : location.href;
    const answer = await fetch(address, LIVE);
    if (deciding) { again = true; return; }
    if (answer.status === 401) {
      if (busy()) tell("The page is locked. Your text is still here: sending it asks for your passphrase.", true);
      else location.assign(address);
      return;
    }
    if (!answer.ok) return;
    const fresh = parse(await answer.text());
    if (number !== turn || old !== letter()) { again = true; return; }  // another letter is open
    local(fresh);
    const current = find("[data-version]", fresh);
    document.title = fresh.title;
    for (const query of ["#queue", ".bar nav", ".budget"]) swap(find(query), find(query, fresh)?.cloneNode(true));
    if (!old || old.dataset.letter !== current?.dataset.letter) {
      if ((old ? !on_letter() : find(".summary")) && !busy()) put(fresh, address, false);
    } else if (old.dataset.version === current.dataset.version) {
      return;
    } else if (old.dataset.digest && old.dataset.digest !== current.dataset.digest) {
      // Kept while somebody reads it: approving it is refused.
      tell("This letter was changed in the meantime. Load the page again to see it as it is now.", true);
      for (const button of all("#approve")) button.disabled = button.dataset.stale = true;
    } else if (busy()) {
      tell(`Already decided. ${find(".now", fresh)?.textContent.trim()} Your text was not used.`, true);
    } else {
      swap(find("main"), find("main", fresh));
      find(".postmark")?.classList.add("fresh");
      started();
      tell(find(".now")?.textContent.trim());
    }
    countDown();
  } catch {
    // The desk was stopped: the stream reports it.
  } finally {
    asking = false;
    if (again && !deciding) { again = false; refresh(); }
  }
}

let stream = null;
let lost = 0;

function listen() {
  if (!find("body.desk") || stream || document.hidden) return;
  stream = new EventSource("/events");
  stream.addEventListener("change", refresh);
  stream.onopen = () => { if (lost > 2) tell("Reconnected."); if (lost) refresh(); lost = 0; };
  stream.onerror = () => {
    lost += 1;
    if (lost === 3) tell(STOPPED, true);
    // Another program may use the port by now: wait for a look at the page.
    if (lost >= 20) { stream?.close(); stream = null; return; }
    // Refused, not lost: the page shows why, for example that it is locked.
    if (stream?.readyState === EventSource.CLOSED) { stream = null; refresh(); setTimeout(listen, 5000); }
  };
}

// A browser opens six connections to a host: a hidden page needs none.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; } else { listen(); refresh(); }
});

// Keys

// On a phone, the list is shown without the letter that is open.
function visible(query) {
  const one = find(query);
  return one?.checkVisibility() ? one : null;
}

const KEYS = {
  j: () => neighbour(1)?.click(),
  k: () => neighbour(-1)?.click(),
  a: approve,
  e: () => visible("#edit")?.click(),
  r: () => visible("[popovertarget=reject]")?.click(),
  v: () => visible("[popovertarget=revise]")?.click(),
  u: () => (visible("#toast form button") || visible("#undo"))?.click(),
  m: () => visible("#beside-link")?.click(),
  "/": () => { const box = find("[type=search]"); if (box) box.focus(); else location.assign("/#find"); },
  "?": () => find("#keys")?.showModal(),
};

// The next letter that waits, or the one before.
function neighbour(by) {
  const rows = all("#queue li a");
  const here = rows.findIndex((one) => one.hasAttribute("aria-current"));
  const others = here < 0 || by > 0 ? rows.slice(here + 1) : rows.slice(0, here).reverse();
  return others.find((one) => one.classList.contains("open"));
}

const unchecked = () => all(".tick :not(:checked)");

function approve() {
  const button = visible("#approve");
  if (!button || button.disabled) return;
  const [box] = unchecked();
  if (box) { box.focus(); box.scrollIntoView({ block: "nearest" }); }
  else if ("direct" in button.dataset) button.click();
  else button.focus();
}

const useKeys = () => { try { return localStorage.keys !== "off"; } catch { return true; } };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  // A held key presses a focused button again and again: once counts.
  if (event.repeat && event.key === "Enter" && !event.target.closest?.("textarea")) event.preventDefault();
  if (event.repeat) return;
  if (event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog[open], .reason") || !useKeys()) return;
  const act = KEYS[event.key];
  if (act && find("body.desk")) { event.preventDefault(); act(); }
});

// Clicks and forms

document.addEventListener("click", (event) => {
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (link?.dataset.notes) { event.preventDefault(); sideNote(link); return; }
  if (link?.dataset.beside) { event.preventDefault(); beside(); return; }
  if (event.target.closest?.("#show-keys")) { KEYS["?"](); return; }
  if (event.target.closest?.("#print")) { print(); return; }
  const is_letter = link && !link.hash && link.origin === location.origin && /^\/letter\/[a-z2-7]{10}$/.test(link.pathname);
  if (is_letter && find("#queue") && !find("article.edit")) { event.preventDefault(); open(link.href); }
});

let leaving = false;
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method === "dialog" || leaving) return;
  if (lost >= 3) { event.preventDefault(); tell(`${STOPPED} Nothing was done.`, true); return; }
  if (form.matches(".filter") && !find("article.edit")) {
    event.preventDefault();
    const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    open(`/?${given}`, false);
    return;
  }
  if (form.matches(".verdict, #toast form")) { event.preventDefault(); decide(form, event.submitter); return; }
  leaving = form.closest("main") !== null;
  setTimeout(() => { for (const one of all("button", form)) one.disabled = true; });
});
document.addEventListener("change", ({ target }) => {
  if (target.matches(".filter select")) target.form.requestSubmit();
  if (target.matches(".tick input")) target.form.classList.toggle("all-checked", !unchecked().length);
});
let typing = 0;
document.addEventListener("input", ({ target }) => {
  clearTimeout(typing);
  if (target.id === "find" && !find("article.edit")) typing = setTimeout(() => target.form.requestSubmit(), 250);
});
// A link within the page opens nothing.
addEventListener("popstate", () => { if (find("body.desk") && tidy(location) !== shownAt) open(location.href, false); });
addEventListener("beforeunload", (event) => {
  const form = find("form.guard");
  const changed = form && all("textarea, input:not([type=hidden])", form).some((one) => one.value !== one.defaultValue);
  if (!leaving && (changed || find("article.review"))) event.preventDefault();
});

// When a page is there

let shownAt;

function started() {
  // On a wide screen the first letter is open: this is its page now.
  if (letter()?.id && location.pathname === "/" && matchMedia("(min-width: 58rem)").matches) {
    history.replaceState(null, "", `/letter/${letter().dataset.letter}${tidy(location).slice(1)}`);
    document.body.classList.add("letter");
  }
  shownAt = tidy(location);
  find("#queue [aria-current]")?.scrollIntoView({ block: "nearest" });
  countDown();
  for (const place of all("[data-load]")) {
    load(place, place.dataset.load);
    delete place.dataset.load;
  }
  settle();
}

const shown = find("article#letter");
if (shown && location.pathname !== "/" && !location.pathname.endsWith(shown.dataset.letter)) history.replaceState(null, "", `/letter/${shown.dataset.letter}`);
else if (/[?&](done|again)=/.test(location.search)) history.replaceState(null, "", tidy(location));
if (location.hash === "#find") find("#find")?.focus();
local();
started();
showToast(find("#toast"));
listen();
setInterval(countDown, 250);
find("form.enter.auto")?.submit();
const use = find("#use-keys");
if (use) {
  use.checked = useKeys();
  use.addEventListener("change", () => { try { localStorage.keys = use.checked ? "on" : "off"; } catch { /* not kept */ } });
}
