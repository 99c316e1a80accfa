// The console's script. Every page works without it: it only saves a click or a look.
"use strict";

const find = (selector) => document.querySelector(selector);

// Ask how far something is, until `told` says that there is nothing more to ask, or who asks may not know any more. A
// console that is not there may come back.
async function poll(address, told) {
  const answer = await fetch(address, { headers: { accept: "application/json" } }).catch(() => null);
  if (answer && [401, 403, 404].includes(answer.status)) return;
  const said = answer && answer.ok ? await answer.json().catch(() => null) : null;
  if (said && !told(said)) return;
  setTimeout(() => poll(address, told), 700);
}

// Live progress of a request: the bar moves, and the page is shown anew when the state is another one.
function watch(card) {
  let state = card.dataset.state;
  poll(card.dataset.progress, (news) => {
    if (news.state !== state) {
      const working = ["queued", "forgetting", "auditing"];
      if (!working.includes(news.state)) { location.reload(); return false; }
      state = news.state;
      document.querySelectorAll(".head .badge").forEach((badge) => {
        badge.textContent = state;
        badge.className = "badge " + (state === "queued" ? "wait" : "work");
      });
      document.querySelectorAll(".steps li").forEach((step) => {
        const own = step.textContent.trim(), order = ["received", "accepted", "queued", "forgetting", "auditing"];
        const past = order.indexOf(own) >= 0 && order.indexOf(own) < order.indexOf(state);
        step.className = own === state ? "now" : past ? "past" : "ahead";
        own === state ? step.setAttribute("aria-current", "step") : step.removeAttribute("aria-current");
      });
      if (state !== "queued") document.querySelectorAll("[data-early]").forEach((form) => form.remove());
      find("#live-title").textContent = state === "queued" ? "Waiting for a worker" : "At work";
    }
    if (news.fraction !== null) find("#bar").value = news.fraction;
    const words = news.stage || (state === "queued" ? "in the queue" : state);
    const percent = news.fraction === null ? "" : ", " + Math.round(100 * news.fraction) + " %";
    if (find("#stage").textContent !== words + percent) find("#stage").textContent = words + percent;
    return !news.settled;
  });
}

// The training of the demo federation: when it is there, the page is shown anew.
function follow(card) {
  poll("/demo", (said) => {
    if (said.state !== "running") { location.reload(); return false; }
    card.querySelector("progress").value = said.fraction;
    card.querySelector("[data-stage]").textContent = said.stage;
    return true;
  });
}

// The form for a new request: what it offers follows the federation and the client.
function offer(form) {
  const offers = JSON.parse(find("#offers").textContent);
  const federation = form.elements.federation, client = form.elements.client, label = form.elements.label;
  const samples = (count) => `${count.toLocaleString("en")} samples`;  // numbers are there for who may see them
  const numbered = (name, count) => count === null ? name : `${name} – ${samples(count)}`;
  const fill = (select, options) => {
    const before = select.value;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    if (options.some(([value]) => String(value) === before)) select.value = before;
  };
  const showClasses = () => {
    const about = offers[federation.value], who = about.clients.find((one) => String(one.client) === client.value);
    const held = about.classes.map((name, place) => [place, name, who.counts.length ? who.counts[place] : null]);
    const there = held.filter(([, , count]) => count !== 0);
    fill(label, [["", "choose one"], ...there.map(([place, name, count]) => [place, numbered(name, count)])]);
    find("#everything").textContent = who.samples === null ? "" : samples(who.samples);
  };
  const showClients = () => {
    fill(client, offers[federation.value].clients.map((one) => [one.client, numbered(one.name, one.samples)]));
    find("#there").textContent = offers[federation.value].features;
    showClasses();
  };
  federation.addEventListener("change", showClients);
  client.addEventListener("change", showClasses);
  label.addEventListener("change", () => { form.elements.kind.value = "class"; });
  form.elements.sample_ids.addEventListener("input", () => { form.elements.kind.value = "samples"; });
  form.elements.feature.addEventListener("input", () => { form.elements.kind.value = "feature"; });
}

// Buttons that only a script can serve are shown by the script.
function equip() {
  document.querySelectorAll("[data-print]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => print());
  });
  document.querySelectorAll("[data-copy]").forEach((button) => {
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  });
  // The same form twice is one request anyway; the button says that it was heard.
  document.querySelectorAll("form[method=post]").forEach((form) => {
    form.addEventListener("submit", () => setTimeout(() => {
      form.querySelectorAll("button:not([type=button])").forEach((button) => { button.disabled = true; });
    }));
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) document.querySelectorAll("button[disabled]").forEach((button) => { button.disabled = false; });
  });
}

const card = find("[data-progress]"), demo = find("[data-demo]"), form = find("[data-offers]");
if (card) watch(card);
if (demo) follow(demo);
if (form && find("#offers")) offer(form);
equip();
