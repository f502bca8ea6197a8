// The list of hits: each turn with its day, speaker, text and source, what each list says of it, and the way to it.

import { element } from "./elements.js";
import { minute, score, time } from "./format.js";

// Returns the list of the turns of an answer to a search.
export function hitList(answer, names, select) {
  const best = bestOfLegs(answer.hits);
  return element("ol", { class: "hits" }, answer.hits.map((hit) => hitItem(hit, best, names, select)));
}

function hitItem(hit, best, names, select) {
  return element(
    "li",
    { "data-id": hit.turn_id },
    element(
      "p",
      { class: "head" },
      element("span", { class: "rank" }, `${hit.rank}`),
      time(hit.said_at),
      element("strong", {}, hit.speaker ?? hit.role ?? "speaker unknown"),
      element("span", { class: "score", title: "score" }, score(hit.score)),
    ),
    textButton(hit.turn_id, hit.text, select),
    attachments(hit),
    element("p", { class: "source" }, sourceOf(hit)),
    legs(hit, best),
    way(hit, names, select),
  );
}

// A text that leads to its memory.
export function textButton(id, text, select) {
  return element("button", { type: "button", class: "text", "data-select": id, click: () => select(id) }, text);
}

// A short name that leads to its memory; of one that the answer does not tell of, the beginning of its id.
export function link(id, names, select) {
  const shown = names.get(id) ?? id.slice(0, 8);
  return element("button", { type: "button", class: "step", title: id, click: () => select(id) }, shown);
}

// Where in the log a turn is.
export function sourceOf(turn) {
  const own = turn.source_id === null ? "" : ` · source ${turn.source_id}`;
  return `session ${turn.session_id} · position ${turn.position}${own}`;
}

function attachments(hit) {
  const known = JSON.parse(hit.attachments);
  return known.length ? element("p", { class: "source" }, `attached: ${hit.attachments}`) : null;
}

function bestOfLegs(hits) {
  const best = {};
  for (const hit of hits) {
    for (const [name, leg] of Object.entries(hit.legs)) best[name] = Math.max(best[name] ?? 0, leg.score);
  }
  return best;
}

function legs(hit, best) {
  const known = Object.entries(hit.legs).filter(([, leg]) => leg.rank > 0);
  if (!known.length) return null;
  return element("dl", { class: "legs", "aria-label": "What each list says" }, known.map(([name, leg]) => {
    const said = element("dd", {}, `#${leg.rank}`, element("span", {}, score(leg.score)));
    // Of the best score that this list gave to a hit; a list may give scores below 0.
    said.style.setProperty("--share", `${Math.max(0, Math.min(1, leg.score / best[name] || 0)) * 100}%`);
    return element("div", {}, element("dt", {}, name), said);
  }));
}

// By id, what the memories that an answer tells of are called where there is no room for their texts.
export function namesOf(answer) {
  const nodes = [...answer.nodes, ...answer.hypergraph];
  const named = nodes.map((node) => [node.id, `${node.level} “${shortened(node.title || node.text)}”`]);
  return new Map([...named, ...answer.hits.map((hit) => [hit.turn_id, `hit ${hit.rank}`])]);
}

export function shortened(text) {
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

function way(hit, names, select) {
  if (!hit.path.length) return null;
  const steps = hit.path.map((step) => [
    names.has(step.id)
      ? link(step.id, names, select)
      : element("span", { class: "note" }, `a ${step.level} outside of the filters`),
    element("span", { class: `relation ${step.relation}` }, `${step.relation} →`),
  ]);
  return element("p", { class: "way" }, element("span", { class: "note" }, "way: "), steps.flat(), "this");
}

// Returns the list of the facts, episodes or topics that a question found by their own vectors.
export function nodeList(nodes, select) {
  if (!nodes.length) return element("p", { class: "note" }, "None was found.");
  return element("ol", { class: "hits" }, nodes.map((node) =>
    element(
      "li",
      { "data-id": node.id },
      element(
        "p",
        { class: "head" },
        element("span", { class: "rank" }, `${node.rank}`),
        element("span", { class: "time" }, span(node)),
        element("span", { class: "score", title: "cosine" }, score(node.score)),
      ),
      node.title ? element("p", { class: "title" }, node.title) : null,
      textButton(node.id, node.text, select),
      element("p", { class: "source" }, `${node.turn_ids.length} source turns`),
    )));
}

// When something was said: from the first of its turns to the last.
export function span(node) {
  const [start, end] = [node.started_at, node.ended_at].map((iso) => (iso === null ? null : minute(iso)));
  if (start === null && end === null) return "time unknown";
  return start === end || end === null ? start : `${start ?? "…"} – ${end}`;
}
