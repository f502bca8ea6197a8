// The page: asks what the form says and shows what the endpoint answers.

import { contextView } from "./context.js";
import { byId, element, facts } from "./elements.js";
import { Problem, ask, hasKey, useKey } from "./endpoint.js";
import { count, day } from "./format.js";
import { hitList, namesOf, nodeList } from "./hits.js";
import { drawHypergraph } from "./hypergraph.js";
import { memoryView } from "./memory.js";
import { tabs } from "./tabs.js";
import { drawTimeline } from "./timeline.js";

const LEVELS = [["turn", "Turns"], ["fact", "Facts"], ["episode", "Episodes"], ["topic", "Topics"]];
const KINDS = ["temporal", "semantic", "causal", "entity", "holds"];
const REASONS = {
  no_query_terms: "The question has no word to search for: stop words and punctuation find nothing.",
  no_match: "Nothing in this namespace matches the question.",
  nothing_passes_the_filters: "No turn of this namespace passes the filters.",
  unknown_namespace: "This version has nothing of that namespace; is its name whole, such as acme/alice?",
};

const ONE_COLUMN = matchMedia("(max-width: 1000px)"); // as explorer.css has it

const question = byId("question");
const keyDialog = byId("key");
const levels = tabs(byId("levels"), "Levels", LEVELS);
const details = tabs(byId("detail-tabs"), "Details", [["memory", "Memory"], ["context", "Context"]]);
let asking = new AbortController(); // a new question ends the one before
let looking = new AbortController(); // a new choice ends the one before
let shown = { namespace: "", names: new Map() }; // what is on the page
let version = null;
let marks = []; // of each drawing, what marks a memory as the one that is looked at

// ---- what is asked

function filtersOf(form) {
  const filters = {};
  for (const name of ["speaker", "session_id"]) if (form.get(name)) filters[name] = form.get(name);
  if (form.get("from")) filters.said_from = `${form.get("from")}T00:00:00Z`;
  // The form's last day is meant with all its hours; the endpoint takes the moment at which it is over.
  if (form.get("to")) filters.said_until = new Date(Date.parse(form.get("to")) + 86_400_000).toISOString();
  return filters;
}

function askedOf(form) {
  const asked = { query: form.get("query"), namespace: form.get("namespace"), filters: filtersOf(form) };
  if (form.get("recipe")) asked.recipe = form.get("recipe");
  if (form.get("as_of")) asked.as_of = `${form.get("as_of")}T23:59:59.999Z`;
  return asked;
}

async function askAll() {
  asking.abort();
  looking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const form = new FormData(question);
  const asked = askedOf(form);
  const { namespace } = asked;
  tell("Asking …");
  const began = performance.now();
  try {
    const searched = { ...asked, k: Number(form.get("k")), levels: LEVELS.map(([level]) => level), explain: true };
    const answer = await ask("search", searched, signal);
    const milliseconds = performance.now() - began;
    const [stats, context] = await Promise.all([
      ask("namespaces/stats", { namespace }, signal),
      ask("context", { ...asked, tokens: Number(form.get("tokens")) }, signal),
    ]);
    remember(namespace);
    show(namespace, answer, stats, context, milliseconds);
  } catch (error) {
    fail(error);
  }
}

// Namespaces that were asked in this tab are offered again.
function remember(namespace) {
  const known = byId("asked");
  if (![...known.options].some((option) => option.value === namespace)) {
    known.append(element("option", { value: namespace }));
  }
}

// ---- what is shown

function tell(text) {
  byId("status").replaceChildren(text);
  byId("problem").replaceChildren();
}

// Shows why there is no answer. Errors of this page itself are not swallowed: they go on to the console.
function fail(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Problem)) throw error;
  byId("status").replaceChildren();
  byId("found").hidden = true;
  byId("problem").replaceChildren(problemView(error));
  if (error.status === 401) {
    openKey(hasKey() ? "The endpoint does not take this key." : "This endpoint asks for a key.");
  }
}

function problemView(problem) {
  const { status, title, message, errors } = problem;
  return element(
    "div",
    { class: "problem" },
    element("strong", {}, status ? `${title} (${status})` : title),
    element("p", {}, message),
    element("ul", {}, errors.map((fault) => element("li", {}, element("code", {}, fault.field), ` ${fault.message}`))),
  );
}

function show(namespace, answer, stats, context, milliseconds) {
  shown = { namespace, names: namesOf(answer) };
  tell("");
  byId("empty").hidden = true;
  byId("found").hidden = answer.reason === "unknown_namespace"; // there is nothing around nothing
  const spent = Object.entries(answer.timings_ms).map(([stage, each]) => `${stage} ${each.toFixed(1)}`).join(", ");
  byId("status").replaceChildren(
    element("strong", {}, answer.hits.length ? count(answer.hits.length, "hit") : "No hit"),
    ` by ${answer.recipe} in ${milliseconds.toFixed(0)} ms`,
    element("span", { class: "note" }, spent ? ` (${spent})` : ""),
    ...notices(answer),
  );
  byId("counts").replaceChildren(...facts(countsOf(stats)));
  const found = { turn: answer.hits };
  for (const [level, title] of LEVELS) {
    found[level] ??= answer.nodes.filter((node) => node.level === level);
    levels.label(level, `${title} ${found[level].length}`);
    levels.panels[level].replaceChildren(level === "turn" ? turnList(answer) : nodeList(found[level], select));
  }
  marks = [
    drawTimeline(byId("strip"), stats, answer.hits, select),
    drawHypergraph(byId("hypergraph"), answer, select),
  ];
  const kinds = answer.hits.some((hit) => hit.path.length) ? KINDS : [];
  byId("kinds").replaceChildren(...kinds.map((kind) => element("span", { class: `relation ${kind}` }, kind)));
  details.panels.context.replaceChildren(...contextView(context, shown.names, select));
  details.panels.memory.replaceChildren(element("p", { class: "note" }, "Choose a hit or a node to see all of it."));
  if (answer.version !== version) start(); // another one is served by now
  if (answer.hits.length) showMemory(answer.hits[0].turn_id);
}

function turnList(answer) {
  if (answer.hits.length) return hitList(answer, shown.names, select);
  return element("p", { class: "note" }, REASONS[answer.reason] ?? answer.reason);
}

// What speaks against the hits, or why there are none.
function notices(answer) {
  const { abstention, reason } = answer;
  const told = [];
  if (reason) told.push(["notice", REASONS[reason] ?? reason]);
  if (abstention?.abstains) {
    const why = abstention.reason?.text ?? "the memory does not seem to hold it";
    told.push(["notice", `Better not answered: ${why}.`]);
  }
  if (abstention) told.push(["note", ` held with probability ${abstention.probability.toFixed(2)}`]);
  if (answer.reranked) told.push(["note", " reranked"]);
  return told.map(([kind, text]) => element("span", { class: kind }, text));
}

function countsOf(stats) {
  const names = ["turns", "sessions", "facts", "episodes", "topics", "skills", "runs"];
  const counts = names.map((name) => [name, stats[name].toLocaleString("en")]);
  const span = stats.first_said_at ? `${day(stats.first_said_at)} – ${day(stats.last_said_at)}` : null;
  return [...counts, ["said", span]];
}

// What a person chooses; where the parts stand below each other the page goes to it.
async function select(id) {
  await showMemory(id);
  if (ONE_COLUMN.matches) byId("details").scrollIntoView();
}

// Shows a memory in full, and where it is on the page.
async function showMemory(id) {
  for (const mark of marks) mark(id);
  for (const one of document.querySelectorAll("[data-id]")) one.classList.toggle("selected", one.dataset.id === id);
  looking.abort();
  looking = new AbortController();
  const { namespace, names } = shown;
  try {
    const memory = await ask("memories/get", { id, namespace }, looking.signal);
    details.panels.memory.replaceChildren(...memoryView(memory, names, select));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    details.panels.memory.replaceChildren(problemView(error));
  }
  details.show("memory");
}

// ---- version and key

async function start() {
  try {
    const about = await ask("version");
    version = about.version;
    byId("about").replaceChildren(...facts([
      ["version", version],
      ["pointer", about.pointer],
      ["cannot be served", about.refused],
    ]));
    offer(about.recipes, about.default_recipe);
  } catch (error) {
    fail(error);
  }
}

// Offers the recipes of a version; the one that was chosen stays so, if it is among them.
function offer(recipes, usual) {
  const chosen = question.elements.recipe.value;
  const options = recipes.map((name) => element("option", { value: name, selected: name === chosen }, name));
  question.elements.recipe.replaceChildren(element("option", { value: "" }, `default (${usual})`), ...options);
}

function openKey(told) {
  byId("key-told").replaceChildren(told);
  if (!keyDialog.open) keyDialog.showModal();
}

function changeKey(text) {
  useKey(text);
  keyDialog.querySelector("form").reset();
  keyDialog.close();
  byId("key-open").replaceChildren(hasKey() ? "Key in use" : "Key");
  tell("");
  start();
}

question.addEventListener("submit", (event) => {
  event.preventDefault();
  askAll();
});
keyDialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  changeKey(new FormData(event.target).get("key").trim());
});
byId("key-open").addEventListener("click", () => openKey(hasKey() ? "A key is in use." : "No key is in use."));
byId("key-forget").addEventListener("click", () => changeKey(""));
byId("key-close").addEventListener("click", () => keyDialog.close());
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey || keyDialog.open) return;
  event.preventDefault();
  question.elements.query.select();
});
start();
